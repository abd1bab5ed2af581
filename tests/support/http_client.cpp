#include "tests/support/http_client.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"

namespace axonn::testing_support {

namespace {

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b,
                            [](char x, char y) { return std::tolower(x) == std::tolower(y); });
}

/// The content of a body in chunks; nothing if it is not whole.
bool join_chunks(std::string_view bytes, std::string& to) {
  for (;;) {
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), size, 16);
    const auto line = bytes.find("\r\n");
    if (error != std::errc() || line == bytes.npos || bytes.size() < line + size + 4) return false;
    if (size == 0) return true;
    to += bytes.substr(line + 2, size);
    bytes.remove_prefix(line + size + 4);
  }
}

}  // namespace

RawConnection::RawConnection(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval minute{.tv_sec = 60};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  (void)::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to);
}

RawConnection::~RawConnection() { ::close(socket_); }

bool RawConnection::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const auto count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string RawConnection::receive(std::size_t most) const {
  std::string bytes(most, '\0');
  const auto count = ::recv(socket_, bytes.data(), bytes.size(), 0);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

std::string RawConnection::receive_all() const {
  std::string all;
  for (std::string more; !(more = receive()).empty();) all += more;
  return all;
}

void RawConnection::end_sending() const { ::shutdown(socket_, SHUT_WR); }

void RawConnection::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(std::exchange(socket_, -1));
}

std::string HttpAnswer::header(std::string_view name) const {
  for (std::string_view rest = head; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find("\r\n"));
    const std::size_t colon = line.find(": ");
    if (colon != line.npos && same_name(line.substr(0, colon), name))
      return std::string(line.substr(colon + 2));
    rest.remove_prefix(std::min(line.size() + 2, rest.size()));
  }
  return {};
}

HttpAnswer parse_answer(std::string_view bytes) {
  HttpAnswer answer;
  const std::size_t end = bytes.find("\r\n\r\n");
  if (!bytes.starts_with("HTTP/1.1 ") || end == bytes.npos) return answer;
  answer.head = bytes.substr(0, end);
  bytes.remove_prefix(end + 4);
  if (answer.header("Transfer-Encoding") == "chunked") {
    if (!join_chunks(bytes, answer.body)) return answer;
  } else {
    answer.body = bytes;
    const std::string length = answer.header("Content-Length");
    if (!length.empty() && length != std::to_string(bytes.size())) return answer;
  }
  std::from_chars(answer.head.data() + 9, answer.head.data() + 12, answer.status);
  return answer;
}

std::string request_text(std::string_view method, std::string_view path, std::string_view body,
                         const HttpHeaders& headers) {
  std::string text = concat(method, ' ', path, " HTTP/1.1\r\nConnection: close\r\n");
  const auto line = [&](std::string_view name, std::string_view value) {
    text += concat(name, ": ", value, "\r\n");
  };
  const auto unless_given = [&](std::string_view name, std::string_view value) {
    if (std::ranges::none_of(headers, [&](const auto& one) { return same_name(one.first, name); }))
      line(name, value);
  };
  unless_given("Host", "localhost");
  if (method != "GET") {
    unless_given("Content-Type", "application/json");
    line("Content-Length", std::to_string(body.size()));
  }
  for (const auto& [name, value] : headers) line(name, value);
  return text + "\r\n" + std::string(body);
}

HttpAnswer http_get(int port, std::string_view path, const HttpHeaders& headers) {
  const RawConnection connection(port);
  connection.send(request_text("GET", path, "", headers));
  return parse_answer(connection.receive_all());
}

HttpAnswer http_post(int port, std::string_view path, std::string_view body,
                     const HttpHeaders& headers) {
  const RawConnection connection(port);
  connection.send(request_text("POST", path, body, headers));
  return parse_answer(connection.receive_all());
}

}  // namespace axonn::testing_support
