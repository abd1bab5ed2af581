// The heads and bodies of requests.
#include "axonn/app/serve/http.h"
#include "axonn/app/serve/http_reader.h"
#include "axonn/foundation/base/check.h"

#include "tests/fuzz/targets.h"

namespace axonn::fuzz {

/// The first byte says how many bytes come at a time.
void http_request(std::string_view input) {
  constexpr std::size_t kMostBody = 1000;
  if (input.empty()) return;
  const auto step = 1 + static_cast<std::size_t>(input[0]) % 64;
  input.remove_prefix(1);
  HttpReader reader(kMostBody);
  std::string rest;
  for (std::size_t at = 0; at < input.size(); at += step) {
    rest += input.substr(at, step);
    for (std::size_t used = 1; used > 0;) {
      used = reader.read(rest);
      rest.erase(0, used);
      AXONN_CHECK(reader.body_bytes() <= kMostBody, "a body is larger than it may be");
      if (reader.part() == HttpReader::Part::whole) reader.restart();
    }
    AXONN_CHECK(rest.size() <= HttpReader::kHeadBytes + step, "a line is not bounded");
  }
}

std::vector<std::string> http_request_seeds() {
  const std::string post = "POST /a?b=c HTTP/1.1\r\nHost: a\r\n",
                    chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  std::vector<std::string> seeds;
  for (const char step : {'\0', '\2', '\x3f'})
    for (const std::string& request :
         {post + "Content-Length: 3\r\n\r\nabc" + post + "\r\n", chunked + "0\r\n\r\n",
          chunked + "2;x=\"y\\\"z\"\r\nab\r\n3\r\nabc\r\n0;q\r\na: b\r\nc: d\r\n e\r\n\r\n" +
              chunked,
          std::string("GET / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n")})
      seeds.push_back(step + request);
  return seeds;
}

}  // namespace axonn::fuzz
