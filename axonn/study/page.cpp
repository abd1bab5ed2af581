#include "axonn/study/page.h"

#include <string_view>

#include "axonn/base/check.h"
#include "axonn/study/report_json.h"

namespace axonn {

/// page.html with page.js in it; CMakeLists.txt writes its definition.
extern const char kPageTemplate[];

std::string html_page(const MemorizationReport& report) {
  constexpr std::string_view kOpen = "id=\"report\">", kEmpty = "null";
  std::string page = kPageTemplate, json;
  for (const char c : page_json(report))  // no text of the report can end the element
    json += c == '<' ? "\\u003c" : std::string(1, c);
  const std::size_t at = page.find(kOpen);
  AXONN_CHECK(at != std::string::npos, "page.html has no element for the report");
  return page.replace(at + kOpen.size(), kEmpty.size(), json);
}

}  // namespace axonn
