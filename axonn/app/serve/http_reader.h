#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace axonn {

/// The head of a request: its first line, and the other lines that the server reads.
struct HttpHead {
  std::string method, target;  ///< "GET", "/path?name=value"
  std::string host, authorization, content_type, origin;
  bool wants_continue = false;   ///< the client sends its body after "100 Continue"
  bool keeps_alive = false;      ///< the client may send another request after this one
  bool chunked_answers = false;  ///< the client understands answers in chunks (HTTP/1.1)
};

/// Reads requests of HTTP/1 from the bytes of a connection, in bounded memory.
class HttpReader {
 public:
  static constexpr std::size_t kHeadBytes = std::size_t{16} << 10, kHeadLines = 100;

  /// `most_body`: bytes of a body, as it is sent and as it is kept: bodies that are compressed are
  /// refused.
  explicit HttpReader(std::size_t most_body);
  ~HttpReader();

  enum class Part : std::uint8_t { head, body, whole };

  /// Reads on, at most to the end of the present part, and returns the number of bytes that it
  /// used: with those that it did not it must be called again when more have come, unless the part
  /// is another one. Throws HttpError for what is malformed, too large or in a form that is not
  /// supported; no more can be read then.
  std::size_t read(std::string_view bytes);
  /// The part that comes next; `whole`: none, the request is complete.
  Part part() const;

  const HttpHead& head() const;    ///< after its end
  std::size_t body_bytes() const;  ///< received so far
  std::string take_body();
  /// Begins the next request of the connection.
  void restart();

 private:
  class Parser;
  const std::size_t most_body_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace axonn
