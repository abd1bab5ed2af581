#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axonn::testing_support {

/// A client's end of a connection to this machine. Nothing throws: what fails ends it.
class RawConnection {
 public:
  explicit RawConnection(int port);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  /// Returns whether the server took all bytes.
  bool send(std::string_view bytes) const;
  /// The next bytes; "" at the end, or if none come for a minute.
  std::string receive(std::size_t most = 65536) const;
  /// All bytes up to the end of the connection.
  std::string receive_all() const;
  /// Says that no bytes follow.
  void end_sending() const;
  /// Hangs up so that the server notices at once.
  void reset();

 private:
  int socket_;
};

struct HttpAnswer {
  int status = 0;  ///< 0: there was no answer, or a part of one
  std::string head, body;

  /// The value of a line of the head, or "".
  std::string header(std::string_view name) const;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// The bytes of an answer, as they came.
HttpAnswer parse_answer(std::string_view bytes);

/// The bytes of a request, which asks the server to close the connection afterwards.
std::string request_text(std::string_view method, std::string_view path, std::string_view body,
                         const HttpHeaders& headers);

/// Asks a server on this machine. Host is localhost, and the Content-Type of a body JSON, unless
/// headers say another.
HttpAnswer http_get(int port, std::string_view path, const HttpHeaders& headers = {});
HttpAnswer http_post(int port, std::string_view path, std::string_view body,
                     const HttpHeaders& headers = {});

}  // namespace axonn::testing_support
