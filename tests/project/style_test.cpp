// Checks style rules: sizes, white space, preprocessor. CONTRIBUTING.md has the other rules.
#include <algorithm>
#include <map>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

constexpr int kMostLines = 600, kMostColumns = 100;
constexpr int kMostFunctionLines = 60, kMostKernelLines = 80, kMostParameters = 5;

using Offenders = std::vector<std::string>;

std::string at(const SourceFile& file, std::size_t line) {
  return file.path + ":" + std::to_string(line + 1);
}

/// Characters, not bytes.
int columns(const std::string& line) {
  return static_cast<int>(
      std::ranges::count_if(line, [](char c) { return (static_cast<int>(c) & 0xc0) != 0x80; }));
}

bool is_document(const SourceFile& file) { return file.path.starts_with("docs/"); }

void check_lines(const SourceFile& file, Offenders& out) {
  if (!is_document(file) && std::ssize(file.lines) > kMostLines)
    out.push_back(file.path + " has " + std::to_string(file.lines.size()) + " lines");
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (!is_document(file) && columns(line) > kMostColumns)
      out.push_back(at(file, i) + " has " + std::to_string(columns(line)) + " columns");
    if (line.ends_with(' ') || line.ends_with('\t') || line.ends_with('\r'))
      out.push_back(at(file, i) + " ends in white space");
    if (line.find('\t') != std::string::npos) out.push_back(at(file, i) + " has a tab");
  }
}

/// Whether the file has macros and functions of other libraries' names.
bool stands_for_library(const SourceFile& file) {
  const std::initializer_list<const char*> all{"tests/emulated_gpu/", "tests/hip_stubs/",
                                               "tests/cluster/simulated_mpi"};
  return std::ranges::any_of(all, [&](const char* path) { return file.path.starts_with(path); });
}

/// Exceptions: dtype.h may test for the compiler, NVIDIA's block for the GPU, others only for code
/// that runs on GPUs; the macros are AXONN_CHECK and AXONN_SHARED.
void check_preprocessor(const SourceFile& file, Offenders& out) {
  if (!file.is_cpp() || file.path == "axonn/compute/tensor/dtype.h" || stands_for_library(file))
    return;
  const bool of_nvidia = file.path == "axonn/compute/ops/gpu/warp_cuda.cuh";
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (of_nvidia && line == "#if __CUDA_ARCH__ >= 800") continue;
    if (line.starts_with("#if") && line != "#if AXONN_GPU_CODE")
      out.push_back(at(file, i) + " has an #if");
    if (line.starts_with("#define") && !line.starts_with("#define AXONN_CHECK") &&
        !line.starts_with("#define AXONN_SHARED"))
      out.push_back(at(file, i) + " defines a macro");
  }
}

std::size_t skip_blanks(const std::string& code, std::size_t i) {
  const std::size_t found = code.find_first_not_of(" \n", i);
  return found == std::string::npos ? code.size() : found;
}

/// Whether the text before a brace outside of functions is a function's head.
bool begins_function(std::string head) {
  if (head.starts_with("template")) {
    int depth = 0;
    std::size_t i = head.find('<');
    for (; i < head.size(); ++i) {
      depth += (head[i] == '<') - (head[i] == '>');
      if (depth == 0) break;
    }
    head = head.substr(skip_blanks(head, std::min(i + 1, head.size())));
  }
  for (const char* word : {"namespace", "class ", "struct ", "union ", "enum ", "extern "})
    if (head.starts_with(word)) return false;
  return head.find('(') != std::string::npos;
}

/// Counts the parameters in the first parentheses after the function's name. A leading Context does
/// not count, since every operation has one.
int count_parameters(const std::string& head) {
  std::size_t open = head.find('(');
  if (head.substr(0, open).ends_with("operator")) open = head.find('(', open + 1);
  int depth = 0, commas = 0;
  bool any = false;
  for (std::size_t i = open; i < head.size(); ++i) {
    const char c = head[i];
    depth += (c == '(' || c == '<' || c == '{') - (c == ')' || c == '>' || c == '}');
    if (depth == 0) break;
    if (i > open && c != ' ' && c != '\n') any = true;
    commas += c == ',' && depth == 1;
  }
  const bool context = head.compare(open, 15, "(const Context&") == 0;
  return any ? commas + 1 - context : 0;
}

struct Function {
  int line, lines, parameters;
};

/// Finds functions with a heuristic: outside of functions, a brace after parentheses opens one,
/// unless it opens a type or namespace. A constructor includes its initialisers.
std::vector<Function> functions_of(const SourceFile& file) {
  const std::string code = bare_code(file);
  const auto line_of = [&](std::size_t i) {
    return static_cast<int>(std::count(code.begin(), code.begin() + i, '\n')) + 1;
  };
  std::vector<Function> functions;
  std::size_t head = skip_blanks(code, 0);
  int depth = 0;  // of braces within a function; 0 outside
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (depth > 0) {
      depth += (code[i] == '{') - (code[i] == '}');
      if (depth > 0) continue;
      const char next =
          i + 1 < code.size() ? code[std::min(skip_blanks(code, i + 1), code.size() - 1)] : ' ';
      if (next == ',' || next == '{') continue;  // an initialiser
      const int line = line_of(head);
      functions.push_back(
          {line, line_of(i) - line + 1, count_parameters(code.substr(head, i - head))});
      head = skip_blanks(code, i + 1);
    } else if (code[i] == '{' && begins_function(code.substr(head, i - head))) {
      depth = 1;
    } else if (code[i] == '{' || code[i] == '}' || code[i] == ';') {
      head = skip_blanks(code, i + 1);
    } else if (code[i] == ':' && i >= 6 && head < i && code[i + 1] == '\n') {
      head = skip_blanks(code, i + 1);  // public:
    }
  }
  return functions;
}

void check_functions(const SourceFile& file, Offenders& out) {
  if (!file.is_cpp()) return;
  const bool kernels = file.path.starts_with("axonn/compute/ops/");
  // Inner loops of kernels and the reference's plain loops may take many pointers and sizes.
  const bool bare = file.path.starts_with("axonn/compute/ops/cpu/") ||
                    file.path.starts_with("axonn/compute/ops/gpu/") ||
                    file.path.starts_with("tests/support/reference") || stands_for_library(file);
  const int most = kernels ? kMostKernelLines : kMostFunctionLines;
  for (const Function& f : functions_of(file)) {
    const std::string where = file.path + ":" + std::to_string(f.line);
    if (f.lines > most)
      out.push_back(where + " is a function of " + std::to_string(f.lines) + " lines");
    if (f.parameters > kMostParameters && !bare)
      out.push_back(where + " is a function of " + std::to_string(f.parameters) + " parameters");
  }
}

Offenders offenders(const SourceFile& file) {
  Offenders out;
  check_lines(file, out);
  check_preprocessor(file, out);
  check_functions(file, out);
  return out;
}

Offenders offenders(const char* path, const std::string& text) {
  return offenders(source_file(path, text));
}

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

TEST(Style, EverySourceKeepsTheRules) {
  Offenders all;
  for (const SourceFile& file : source_tree())
    for (const std::string& offender : offenders(file)) all.push_back(offender);
  std::string text;
  for (const std::string& offender : all) text += "  " + offender + '\n';
  EXPECT_TRUE(all.empty()) << text;
}

TEST(Style, LongFilesLongLinesAndTrailingSpacesAreFound) {
  EXPECT_THAT(offenders("axonn/a.cpp", repeat("\n", 601)), ElementsAre(HasSubstr("601 lines")));
  EXPECT_THAT(offenders("axonn/a.cpp", "// " + repeat("é", 97)), IsEmpty());
  EXPECT_THAT(offenders("axonn/a.cpp", "// " + repeat("é", 98)),
              ElementsAre(HasSubstr("a.cpp:1 has 101 columns")));
  EXPECT_THAT(offenders("configs/a.toml", "x = 1 \n"), ElementsAre(HasSubstr("white space")));
}

TEST(Style, PreprocessorConditionsAndMacrosAreFound) {
  EXPECT_THAT(offenders("axonn/a.h", "#pragma once\n#ifdef X\n#endif\n"),
              ElementsAre(HasSubstr("a.h:2 has an #if")));
  EXPECT_THAT(offenders("axonn/a.h", "#define X 1\n"), ElementsAre(HasSubstr("macro")));
}

TEST(Style, LongFunctionsAreFoundInTypesToo) {
  const std::string body = repeat("  f();\n", 59);
  EXPECT_THAT(offenders("axonn/a.cpp", "void g() {\n" + body.substr(0, 58 * 7) + "}\n"), IsEmpty());
  EXPECT_THAT(offenders("axonn/a.cpp", "namespace x {\n\nvoid g() {\n" + body + "}\n}\n"),
              ElementsAre(HasSubstr("a.cpp:3 is a function of 61 lines")));
  EXPECT_THAT(
      offenders("axonn/a.h", "class A : B<C()> {\n public:\n  void g() const {\n" + body + "}\n};"),
      ElementsAre(HasSubstr("a.h:3 is a function of 61 lines")));
  EXPECT_THAT(offenders("axonn/a.cpp", "A::A(int b)\n    : b_{b},\n      c_(b) {\n" + body + "}\n"),
              ElementsAre(HasSubstr("a.cpp:1 is a function of 63 lines")));
}

TEST(Style, BracesInLiteralsAndCommentsDoNotCount) {
  EXPECT_THAT(
      functions_of(source_file("a.cpp", "void g() {\n  f(\"}\", '}', R\"(}})\");  // }\n}\n"))
          .front()
          .lines,
      3);
}

TEST(Style, ManyParametersAreFound) {
  EXPECT_THAT(
      offenders("axonn/a.cpp", "void g(std::map<int, int> a, int b, int c, int d, int e) {}\n"),
      IsEmpty());
  EXPECT_THAT(offenders("axonn/a.cpp", "void g(int a, int b, int c, int d, int e, int f) {}\n"),
              ElementsAre(HasSubstr("6 parameters")));
}
