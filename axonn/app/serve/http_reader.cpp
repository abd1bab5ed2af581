#include "axonn/app/serve/http_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/version.hpp>

#include "axonn/app/serve/http.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;

}  // namespace

// The library bounds neither the lines of a head nor, in older versions, their sum.
class HttpReader::Parser : public http::basic_parser<true> {
 public:
  explicit Parser(std::size_t most_body) : most_body_(most_body) {
    header_limit(kHeadBytes);
    body_limit(~std::uint64_t{0});  // on_body() bounds it, with an error that says the limit
  }

  HttpHead head;
  std::string body;
  std::size_t head_bytes = 0;

 private:
  using Text = beast::string_view;
  using Code = beast::error_code;

  void on_request_impl(http::verb, Text method, Text target, int version, Code&) override {
    head.method = std::string(method);
    head.target = std::string(target);
    head.chunked_answers = version >= 11;
  }
  void on_response_impl(int, Text, int, Code&) override {}
  void on_field_impl(http::field name, Text, Text value, Code&) override {
    if (++lines_ > kHeadLines)
      throw HttpError(431, concat("the head of the request has more than ", kHeadLines, " lines"));
    if (is_head_whole_) return;  // a line after a body in chunks
    const auto keep = [&](std::string& to) {
      if (!to.empty()) throw HttpError(400, "a line of the request's head occurs twice");
      to = std::string(value);
    };
    switch (name) {
      case http::field::host:
        return keep(head.host);
      case http::field::authorization:
        return keep(head.authorization);
      case http::field::content_type:
        return keep(head.content_type);
      case http::field::origin:
        return keep(head.origin);
      case http::field::content_length:
        has_length_ = true;
        break;
      case http::field::transfer_encoding:
        if (!beast::iequals(value, "chunked"))
          throw HttpError(400, "the only Transfer-Encoding that is supported is chunked");
        is_chunked_ = true;
        break;
      case http::field::content_encoding:
        if (!value.empty() && !beast::iequals(value, "identity"))
          throw HttpError(415,
                          "bodies with a Content-Encoding are not supported: send it as it is");
        break;
      case http::field::expect:
        head.wants_continue = beast::iequals(value, "100-continue");
        break;
      default:
        break;
    }
  }
  // Of Boost 1.88 and later.
  void on_trailer_field_impl(http::field name, Text text, Text value, Code& code) {
    on_field_impl(name, text, value, code);
  }
  void on_header_impl(Code&) override {
    is_head_whole_ = true;
    if (is_chunked_ && has_length_)
      throw HttpError(400, "a request has either Content-Length or Transfer-Encoding");
    head.keeps_alive = keep_alive();
    if (has_length_ && content_length().value_or(0) > most_body_) refuse_body();
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Code&) override {}
  std::size_t on_body_impl(Text text, Code&) override {
    if (text.size() > most_body_ - body.size()) refuse_body();
    body.append(text.data(), text.size());
    return text.size();
  }
  void on_chunk_header_impl(std::uint64_t, Text, Code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text text, Code& code) override {
    return on_body_impl(text, code);
  }
  void on_finish_impl(Code&) override {}

  [[noreturn]] void refuse_body() const {
    throw HttpError(413,
                    concat("the request is too large: its body may have ", most_body_, " bytes"));
  }

  const std::size_t most_body_;
  std::size_t lines_ = 0;
  bool is_head_whole_ = false, has_length_ = false, is_chunked_ = false;
};

HttpReader::HttpReader(std::size_t most_body) : most_body_(most_body) { restart(); }
HttpReader::~HttpReader() = default;

void HttpReader::restart() { parser_ = std::make_unique<Parser>(most_body_); }

HttpReader::Part HttpReader::part() const {
  if (!parser_->is_header_done()) return Part::head;
  return parser_->is_done() ? Part::whole : Part::body;
}

const HttpHead& HttpReader::head() const { return parser_->head; }
std::size_t HttpReader::body_bytes() const { return parser_->body.size(); }
std::string HttpReader::take_body() { return std::exchange(parser_->body, {}); }

std::size_t HttpReader::read(std::string_view bytes) {
  const Part before = part();
  std::size_t used = 0;
  // The end of a body in chunks is at least "0\r\n\r\n". Boost's parser asserts that it sees so
  // much of it at once.
  constexpr std::size_t kLeastChunk = 5;
  if (before == Part::body && parser_->chunked() && bytes.size() < kLeastChunk) return 0;
  while (part() == before && before != Part::whole && used < bytes.size()) {
    beast::error_code code;
    const std::size_t count = parser_->put({bytes.data() + used, bytes.size() - used}, code);
    used += count;
    if (before == Part::head) {
      parser_->head_bytes += count;
      const std::size_t pending = part() == Part::head ? bytes.size() - used : 0;
      if (code == http::error::header_limit || parser_->head_bytes + pending > kHeadBytes)
        throw HttpError(431,
                        concat("the head of the request is larger than ", kHeadBytes, " bytes"));
    }
    if (code == http::error::need_more) break;
    if (code) throw HttpError(400, "the request is malformed: " + code.message());
    if (count == 0) break;
  }
  return used;
}

std::string http_library() {
  return concat("Boost.Beast of Boost ", BOOST_VERSION / 100000, '.', BOOST_VERSION / 100 % 1000);
}

}  // namespace axonn
