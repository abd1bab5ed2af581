#include "tests/support/svg.h"

#include <algorithm>
#include <stack>

namespace axonn::testing_support {

std::string tag_fault(const std::string& text) {
  std::stack<std::string> open;
  for (std::size_t at = 0; (at = text.find('<', at)) != text.npos;) {
    const std::size_t end = text.find('>', at);
    if (end == text.npos) return "a tag is not closed by >";
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (std::ranges::count(tag, '"') % 2 != 0) return "quotes do not match in <" + tag + '>';
    const std::string name = tag.substr(0, tag.find_first_of(" \n/", 1));
    if (tag.starts_with('/')) {
      if (open.empty() || '/' + open.top() != tag) return "</" + tag + "> closes nothing";
      open.pop();
    } else if (!tag.ends_with('/')) {
      open.push(name);
    }
    at = end;
  }
  return open.empty() ? "" : '<' + open.top() + "> is not closed";
}

}  // namespace axonn::testing_support
