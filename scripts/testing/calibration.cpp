// Compiled to measure the speed of a machine (run.py). Changing it changes CALIBRATION_SECONDS.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>

int main() {
  std::map<std::string, int> words;
  words["a"] = 1;
  std::cout << std::regex_match("aab", std::regex("a+b")) << words.size();
}
