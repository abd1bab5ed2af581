#include "axonn/app/serve/http.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <random>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/app/serve/http_connections.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr std::string_view kAnyOrigin = "*", kPreflight = "OPTIONS";
constexpr std::array kThisMachine{"127.0.0.1", "localhost", "::1", "[::1]"};

bool is_this_machine(const std::string& host) {
  return std::ranges::find(kThisMachine, lower_ascii(host)) != kThisMachine.end();
}

/// "localhost:8000" without its port.
std::string host_in(const std::string& header) {
  const std::size_t colon = header.rfind(':');
  return colon == header.npos || header.ends_with(']') ? header : header.substr(0, colon);
}

/// "application/json" of "Application/JSON; charset=utf-8".
std::string media_type(const std::string& header) {
  std::string type = lower_ascii(header.substr(0, header.find(';')));
  type.erase(type.find_last_not_of(" \t") + 1);
  return type;
}

/// The secret of "Bearer SECRET"; "" of another scheme.
std::string bearer_of(const std::string& header) {
  const std::size_t space = header.find(' '), begin = header.find_first_not_of(' ', space);
  return begin == header.npos || lower_ascii(header.substr(0, space)) != "bearer"
             ? ""
             : header.substr(begin);
}

/// Compares in a time that does not depend on where they differ.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |=
        static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(i < b.size() ? b[i] : '\0');
  return difference == 0;
}

/// Replaces %41 by A and, in a parameter, + by a space.
std::string unescaped(std::string_view text, bool is_parameter) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char *digits = text.data() + i + 1, *end = digits + 2;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, end, byte, 16).ptr == end) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += is_parameter && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

/// Refuses what is no origin, as browsers send it.
void check_origin(const std::string& origin) {
  const std::size_t host = origin.find("://") + 3;
  const bool web = origin.starts_with("http://") || origin.starts_with("https://");
  if (origin != kAnyOrigin &&
      (!web || host >= origin.size() || origin.find_first_of("/?#, \r\n\t", host) != origin.npos))
    refuse("--allow-origin wants an origin such as https://chat.example, without a path, or '*', ",
           "got '", printable(origin), '\'');
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return status < 500 ? "Error" : "Internal Server Error";
  }
}

/// Lets the scripts of a page run, and nothing that finds its way into it. Returns the page's
/// Content-Security-Policy.
std::string admit_scripts(std::string& page) {
  std::random_device random;
  const std::string nonce =
      fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  constexpr std::string_view kTag = "<script>";
  for (std::size_t at = 0; (at = page.find(kTag, at)) != page.npos;)
    page.replace(at, kTag.size(), fmt::format("<script nonce=\"{}\">", nonce));
  return fmt::format(
      "default-src 'none'; script-src 'nonce-{}'; style-src 'unsafe-inline'; connect-src 'self'; "
      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      nonce);
}

}  // namespace

std::string HttpRequest::parameter(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view one = rest.substr(0, end);
    const std::size_t equals = std::min(one.find('='), one.size());
    if (unescaped(one.substr(0, equals), true) == name)
      return unescaped(one.substr(std::min(equals + 1, one.size())), true);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

class HttpServer::State : public HttpService {
 public:
  explicit State(Options its_options) : options(std::move(its_options)) {
    add("GET", "/favicon.ico",
        {[](const HttpRequest&, HttpResponse& response) { response.status = 204; }, true});
  }

  struct Route {
    Handler handler;
    bool is_open = false;
  };
  void add(const std::string& method, const std::string& path, Route route) {
    routes_[method + ' ' + path] = std::move(route);
  }

  Admitted admit(const HttpHead& head) const override;
  HttpResponse answer(const HttpRequest& request) const override;
  HttpResponse refusal(const HttpError& error) const override;
  std::string head_of(const HttpResponse& response, const Framing& framing,
                      const std::string& origin) const override;

  Options options;
  HttpConnections connections{options, *this};

 private:
  const Route* find(const std::string& method, const std::string& path) const;
  bool allows(std::string_view origin) const {
    return !origin.empty() && std::ranges::any_of(options.origins, [&](const std::string& each) {
      return each == origin || each == kAnyOrigin;
    });
  }

  std::map<std::string, Route> routes_;  // by "GET /path"
};

const HttpServer::State::Route* HttpServer::State::find(const std::string& method,
                                                        const std::string& path) const {
  const std::string wanted = concat(method == "HEAD" ? "GET" : method, ' ', path);
  if (const auto found = routes_.find(wanted); found != routes_.end()) return &found->second;
  for (const auto& [name, route] : routes_)
    if (name.ends_with('*') &&
        wanted.starts_with(std::string_view(name).substr(0, name.size() - 1)))
      return &route;
  return nullptr;
}

HttpService::Admitted HttpServer::State::admit(const HttpHead& head) const {
  const std::size_t mark = std::min(head.target.find('?'), head.target.size());
  Admitted admitted;
  admitted.request = {.method = head.method,
                      .path = unescaped(head.target.substr(0, mark), false),
                      .query = head.target.substr(std::min(mark + 1, head.target.size()))};
  const Route* route = find(head.method, admitted.request.path);
  admitted.is_open = route && route->is_open;
  if (is_this_machine(options.host) && !is_this_machine(host_in(head.host)))
    throw HttpError(403, "this server answers only requests to localhost");
  if (head.method == kPreflight && allows(head.origin)) {
    admitted.is_open = true;
    return admitted;
  }
  if (head.method == "POST" && media_type(head.content_type) != "application/json")
    throw HttpError(415, "the header Content-Type must be application/json");
  if (!options.token.empty() && !admitted.is_open &&
      !same_secret(bearer_of(head.authorization), options.token))
    throw HttpError(401, "the header \"Authorization: Bearer TOKEN\" is missing or wrong",
                    "invalid_api_key");
  if (!route) throw HttpError(404, concat("there is no ", head.method, ' ', admitted.request.path));
  return admitted;
}

HttpResponse HttpServer::State::answer(const HttpRequest& request) const {
  try {
    HttpResponse response;
    if (request.method == kPreflight) return {.status = 204};
    find(request.method, request.path)->handler(request, response);
    if (response.type.starts_with("text/html")) response.policy = admit_scripts(response.body);
    return response;
  } catch (const HttpError& error) {
    return refusal(error);
  } catch (const UsageError& error) {
    return refusal(HttpError(400, error.what()));
  } catch (const std::exception& error) {
    return refusal(HttpError(500, error.what()));
  }
}

HttpResponse HttpServer::State::refusal(const HttpError& error) const {
  const char* type = error.status < 500    ? "invalid_request_error"
                     : error.status == 503 ? "overloaded"
                                           : "server_error";
  return {.status = error.status, .body = error_json(error.what(), type, error.member, error.code)};
}

std::string HttpServer::State::head_of(const HttpResponse& response, const Framing& framing,
                                       const std::string& origin) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_of(response.status));
  const auto line = [&](std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
  };
  if (response.status != 204) {
    line("Content-Type", response.type);
    if (framing.length) line("Content-Length", std::to_string(*framing.length));
    if (framing.chunked) line("Transfer-Encoding", "chunked");
  }
  if (response.status == 401) line("WWW-Authenticate", "Bearer");
  if (response.status == 503) line("Retry-After", "1");
  if (allows(origin)) {
    line("Access-Control-Allow-Origin", origin);
    line("Vary", "Origin");
    if (response.status == 204) {  // clients of OpenAI's API send many headers of their own
      line("Access-Control-Allow-Methods", "GET, POST");
      line("Access-Control-Allow-Headers", "Authorization, *");
      line("Access-Control-Max-Age", "600");
    }
  }
  line("Content-Security-Policy", response.policy);
  line("X-Content-Type-Options", "nosniff");
  line("X-Frame-Options", "DENY");
  line("Referrer-Policy", "no-referrer");
  line("Cache-Control", "no-store");
  line("Connection", framing.keeps_alive ? "keep-alive" : "close");
  return head + "\r\n";
}

std::string error_json(const std::string& message, const std::string& type,
                       const std::string& member, const std::string& code) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  return nlohmann::json{{"error",
                         {{"message", message},
                          {"type", type},
                          {"param", or_null(member)},
                          {"code", or_null(code)}}}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         '\n';
}

HttpServer::HttpServer(Options options) {
  if (!is_this_machine(options.host) && options.token.empty())
    refuse("other machines can reach ", options.host,
           ", so a token is needed: set --token, or listen on 127.0.0.1");
  std::ranges::for_each(options.origins, check_origin);
  if (std::ranges::find(options.origins, kAnyOrigin) != options.origins.end() &&
      options.token.empty())
    refuse("all pages of this machine's browsers could use the server with --allow-origin '*', so ",
           "a token is needed: set --token, or name the origins");
  state_ = std::make_unique<State>(std::move(options));
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::get(const std::string& path, Handler handler, bool open) {
  state_->add("GET", path, {std::move(handler), open});
}

void HttpServer::post(const std::string& path, Handler handler) {
  state_->add("POST", path, {std::move(handler)});
}

int HttpServer::start() { return state_->options.port = state_->connections.start(); }
void HttpServer::stop() { state_->connections.stop(); }

std::string HttpServer::address() const {
  const auto& [host, port] = std::tie(state_->options.host, state_->options.port);
  const bool bare = host.find(':') != host.npos && !host.starts_with('[');
  return concat("http://", bare ? "[" : "", host, bare ? "]:" : ":", port);
}

}  // namespace axonn
