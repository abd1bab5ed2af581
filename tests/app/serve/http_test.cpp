// The web server: what it answers, and what clients that mean harm can take from it.
#include "axonn/app/serve/http.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/app/serve/http_connections.h"
#include "axonn/app/serve/http_reader.h"
#include "axonn/foundation/base/check.h"

#include "tests/fuzz/memory.h"
#include "tests/support/http_client.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

constexpr std::size_t kMostBody = 1000;

/// The status with which a request is refused; 0 if it is read whole.
int refusal(const std::string& bytes, std::size_t at_a_time = 1 << 20) {
  HttpReader reader(kMostBody);
  std::string rest;
  try {
    for (std::size_t at = 0; at < bytes.size(); at += at_a_time) {
      rest += bytes.substr(at, at_a_time);
      for (std::size_t used = 1; used > 0; rest.erase(0, used)) used = reader.read(rest);
    }
  } catch (const HttpError& error) {
    return error.status;
  }
  EXPECT_EQ(reader.part(), HttpReader::Part::whole) << bytes.substr(0, 200);
  return 0;
}

std::string post_head(const std::string& lines) {
  return "POST /echo HTTP/1.1\r\nHost: localhost\r\n" + lines + "\r\n";
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

/// A server with a few paths: /open, /echo (POST), /page, and /wait, whose answer comes with
/// next_piece().
class ServerTest : public testing::Test {
 protected:
  void serve(HttpServer::Options options = {}) {
    options.port = 0;
    options.clock = [this] { return clock_.load(); };
    server_ = std::make_unique<HttpServer>(options);
    const auto fixed = [](std::string type, std::string body) {
      return [type, body](const HttpRequest&, HttpResponse& response) {
        response.type = type;
        response.body = body;
      };
    };
    server_->get("/open", fixed("application/json", "{}"), true);
    server_->get("/page", fixed("text/html", "<script>1</script><b>"), true);
    server_->get("/fail", [](const HttpRequest&, HttpResponse&) { throw Error("broken"); });
    server_->get("/of/*", [](const HttpRequest& request, HttpResponse& response) {
      response.body = request.path + '|' + request.parameter("a b");
    });
    server_->post("/echo", [](const HttpRequest& request, HttpResponse& response) {
      response.body = request.body;
    });
    server_->get("/wait", [this](const HttpRequest& request, HttpResponse& response) {
      const std::lock_guard lock(mutex_);
      news_.push_back(request.news);
      response.pieces = [this, held = std::make_shared<Held>(held_)]() { return piece(); };
      ++waiting_;
    });
    port_ = server_->start();
  }
  struct Held {
    explicit Held(std::atomic<int>& count) : count_(&count) { ++*count_; }
    ~Held() { --*count_; }
    std::atomic<int>* count_;
  };
  virtual std::optional<std::string> piece() {
    if (fails_) throw HttpError(503, "no more");
    if (ended_) return std::nullopt;
    return "";
  }
  void ring() {
    const std::lock_guard lock(mutex_);
    for (const auto& news : news_) news();
  }
  static void until(const std::function<bool()>& holds) {
    while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  /// The most bytes that the process held during the call, beyond those before it.
  static std::int64_t bytes_of(const std::function<void()>& call) {
    const std::int64_t before = fuzz::held_bytes();
    fuzz::most_held_bytes();
    call();
    return fuzz::most_held_bytes() - before;
  }

  std::atomic<double> clock_ = 1000;
  std::atomic<bool> ended_ = false, fails_ = false;
  std::atomic<int> held_ = 0, waiting_ = 0;  // answers of /wait that exist, and that began
  std::mutex mutex_;
  std::vector<std::function<void()>> news_;
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
};

}  // namespace

TEST(HttpReader, ReadsTheSameInPiecesOfAnySize) {
  const std::string plain = post_head("content-TYPE: application/json\r\nContent-Length: 4\r\n") +
                            "body",
                    chunked = post_head("Transfer-Encoding: chunked\r\n") +
                              "2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\nHost: other\r\n\r\n";
  for (const std::string& request : {plain, chunked})
    for (const std::size_t size : {1, 2, 3, 7, 50, 1000}) {
      HttpReader reader(kMostBody);
      std::string rest;
      for (std::size_t at = 0; at < request.size(); at += size) {
        rest += request.substr(at, size);
        for (std::size_t used = 1; used > 0; rest.erase(0, used)) used = reader.read(rest);
      }
      EXPECT_EQ(reader.part(), HttpReader::Part::whole);
      EXPECT_EQ(reader.head().host, "localhost");
      EXPECT_EQ(reader.take_body(), "body");
      EXPECT_EQ(rest, "");
    }
}

// Boost's parser asserts how much it sees of the end.
TEST(HttpReader, ReadsTheEndOfABodyInChunksByteByByte) {
  const std::string head = post_head("Transfer-Encoding: chunked\r\n");
  for (const char* end : {"0\r\n\r\n", "000000;a=b\r\n\r\n", "0\r\na: b\r\n\r\n"})
    for (const char* body : {"", "1\r\na\r\n"})
      for (const std::size_t size : {1, 2, 3, 4}) EXPECT_EQ(refusal(head + body + end, size), 0);
}

TEST(HttpReader, RefusesWhatIsMalformedTooLargeOrAmbiguous) {
  const std::string chunked = post_head("Transfer-Encoding: chunked\r\n");
  const std::vector<std::pair<int, std::string>> cases{
      {0, post_head("Content-Length: 0\r\n")},
      {0, post_head("Content-Encoding: identity\r\n")},
      {0, post_head(repeated("a: b\r\n", HttpReader::kHeadLines - 1))},
      {431, post_head(repeated("a: b\r\n", HttpReader::kHeadLines))},
      {431, post_head("a: " + std::string(HttpReader::kHeadBytes, 'b') + "\r\n")},
      {431, post_head(repeated("a: " + std::string(2000, 'b') + "\r\n", 9))},
      {431, "GET /" + std::string(HttpReader::kHeadBytes, 'a') + " HTTP/1.1\r\n\r\n"},
      {431, chunked + "0\r\n" + repeated("a: b\r\n", HttpReader::kHeadLines) + "\r\n"},
      {413, post_head("Content-Length: 1001\r\n")},
      {413, post_head("Content-Length: 18446744073709551615\r\n")},
      {413, chunked + repeated("64\r\n" + std::string(100, 'a') + "\r\n", 11) + "0\r\n\r\n"},
      {413, chunked + "7fffffffffffffff\r\n" + std::string(2000, 'a')},
      {415, post_head("Content-Encoding: gzip\r\n")},
      {400, post_head("Content-Length: -1\r\n")},
      {400, post_head("Content-Length: 1\r\nContent-Length: 2\r\n") + "ab"},
      {400, post_head("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n"},
      {400, post_head("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n") + "0\r\n\r\n"},
      {400, post_head("Transfer-Encoding: gzip, chunked\r\n")},
      {400, post_head("Host: other\r\n")},
      {400, chunked + "fffffffffffffffff\r\n"},
      {400, chunked + "x\r\nab"},
      {400, "GET / HTTP/3.0\r\n\r\n"},
      {400, std::string("\0\xff\x16\x03", 4) + "\r\n\r\n"},
  };
  for (const auto& [status, request] : cases) {
    EXPECT_EQ(refusal(request), status) << request.substr(0, 120);
    EXPECT_EQ(refusal(request, 700), status) << request.substr(0, 120);
  }
}

TEST_F(ServerTest, PagesOfTheOriginsThatMayUseItCanAndNoOthers) {
  const auto asked = [&](const char* method, const char* path, const HttpHeaders& headers) {
    RawConnection connection(port_);
    connection.send(request_text(method, path, "", headers));
    return parse_answer(connection.receive_all());
  };
  const HttpHeaders page{{"Host", "localhost"}, {"Origin", "https://chat.example"}},
      other{{"Host", "localhost"}, {"Origin", "https://chat.example.org"}};
  constexpr const char* kAllowed = "Access-Control-Allow-Origin";
  serve();
  EXPECT_EQ(asked("OPTIONS", "/echo", page).status, 404) << "off unless origins are named";
  EXPECT_EQ(asked("GET", "/open", page).header(kAllowed), "");

  serve({.token = "secret", .origins = {"http://a", "https://chat.example"}});
  const HttpAnswer preflight = asked("OPTIONS", "/echo", page);
  EXPECT_EQ(preflight.status, 204) << "without the token, which browsers do not send with it";
  EXPECT_EQ(preflight.header(kAllowed), "https://chat.example");
  EXPECT_EQ(preflight.header("Access-Control-Allow-Methods"), "GET, POST");
  EXPECT_EQ(preflight.header("Access-Control-Allow-Headers"), "Authorization, *");
  EXPECT_EQ(preflight.header("Vary"), "Origin");
  EXPECT_EQ(asked("GET", "/open", page).header(kAllowed), "https://chat.example");
  const HttpAnswer refused = asked("GET", "/fail", page);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.header(kAllowed), "https://chat.example") << "so that the page sees why";
  EXPECT_EQ(asked("OPTIONS", "/echo", other).status, 401);
  EXPECT_EQ(asked("GET", "/open", other).header(kAllowed), "");

  serve({.token = "secret", .origins = {"*"}});
  EXPECT_EQ(asked("GET", "/open", other).header(kAllowed), "https://chat.example.org");
  EXPECT_EQ(asked("GET", "/open", {{"Host", "localhost"}}).header(kAllowed), "");
}

TEST_F(ServerTest, RefusesOriginsThatAreNone) {
  EXPECT_THAT([] { HttpServer({.origins = {"*"}}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("a token is needed: set --token")));
  for (const char* wrong : {"chat.example", "https://chat.example/", "https://", "null", ""})
    EXPECT_THAT([&] { HttpServer({.origins = {wrong}}); },
                testing::ThrowsMessage<UsageError>(HasSubstr("--allow-origin wants an origin")))
        << wrong;
}

TEST_F(ServerTest, AnswersRequestsOfAConnectionInTurn) {
  serve();
  const RawConnection connection(port_);
  const std::string get = "GET /of/a%20b?x=1&a+b=c%2Bd+e HTTP/1.1\r\nHost: LOCALHOST:1\r\n";
  connection.send(get + "\r\n" + get + "Connection: close\r\n\r\n");
  const std::string all = connection.receive_all();
  const std::size_t second = all.find("HTTP/1.1", 1);
  ASSERT_NE(second, all.npos);
  for (const HttpAnswer& answer :
       {parse_answer(std::string_view(all).substr(0, second)), parse_answer(all.substr(second))}) {
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "/of/a b|c+d e");
  }
}

TEST_F(ServerTest, SpeaksWithOlderAndCuriousClients) {
  serve();
  const auto answer_to = [&](const std::string& request, bool ends = false) {
    const RawConnection connection(port_);
    connection.send(request);
    if (ends) connection.end_sending();
    return parse_answer(connection.receive_all());
  };
  EXPECT_EQ(answer_to("GET /open HTTP/1.0\r\nHost: localhost\r\n\r\n").body, "{}");
  EXPECT_EQ(answer_to("GET /of/ HTTP/1.1\r\nHost: localhost\r\n\r\n", true).body, "/of/|");
  const HttpAnswer head =
      answer_to("HEAD /open HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(head.head,
              HasSubstr("200 OK\r\nContent-Type: application/json\r\nContent-Length: 2"));
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(answer_to("HEAD /of/ HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n").body, "");
  EXPECT_EQ(http_get(port_, "/fail").status, 500);
  EXPECT_EQ(http_get(port_, "/favicon.ico").status, 204);
  ended_ = true;
  const RawConnection old(port_);
  old.send("GET /wait HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(old.receive_all(), testing::EndsWith("\r\n\r\n")) << "no chunks";
}

TEST_F(ServerTest, TellsAClientThatWaitsToSendItsBody) {
  serve();
  const RawConnection connection(port_);
  const std::string request = request_text("POST", "/echo", "abc", {{"Expect", "100-continue"}});
  connection.send(request.substr(0, request.size() - 3));
  EXPECT_EQ(connection.receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  connection.send("abc");
  EXPECT_EQ(parse_answer(connection.receive_all()).body, "abc");
}

TEST_F(ServerTest, ProtectsItsPages) {
  serve({.token = "secret"});
  const HttpAnswer page = http_get(port_, "/page"), again = http_get(port_, "/page");
  const std::string policy = page.header("Content-Security-Policy");
  const std::size_t nonce = policy.find("'nonce-");
  ASSERT_NE(nonce, policy.npos);
  const std::string value = policy.substr(nonce + 7, 32);
  EXPECT_EQ(page.body, "<script nonce=\"" + value + "\">1</script><b>");
  EXPECT_NE(page.body, again.body);
  for (const HttpAnswer& answer : {page, http_get(port_, "/open"), http_get(port_, "/none")}) {
    EXPECT_EQ(answer.header("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(answer.header("X-Frame-Options"), "DENY");
    EXPECT_THAT(answer.header("Content-Security-Policy"), HasSubstr("default-src 'none'"));
  }
  const auto status = [&](const HttpHeaders& headers, const char* path = "/of/") {
    return http_get(port_, path, headers).status;
  };
  EXPECT_EQ(status({{"Authorization", "bearer  secret"}}), 200) << "schemes have no case";
  for (const char* wrong : {"Bearer secreT", "Bearer", "Bearer ", "secret", "Basic secret", ""})
    EXPECT_EQ(status({{"Authorization", wrong}}), 401) << wrong;
  EXPECT_EQ(status({{"Host", "localhost.attacker.example"}}, "/open"), 403);
  const auto type = [&](const char* of) {
    return http_post(port_, "/echo", "1",
                     {{"Content-Type", of}, {"Authorization", "Bearer secret"}})
        .status;
  };
  EXPECT_EQ(type("Application/JSON; charset=utf-8"), 200);
  for (const char* wrong :
       {"application/jsonx", "text/plain", "", "application/x-www-form-urlencoded"})
    EXPECT_EQ(type(wrong), 415) << wrong;
}

// A refused request takes no more memory than a head, however much the client sends.
TEST_F(ServerTest, TakesLittleMemoryForWhatItRefuses) {
  serve({.token = "secret", .body_bytes = 64 << 10});
  http_get(port_, "/open");
  const std::string
      lines = "GET /open HTTP/1.1\r\nHost: localhost\r\n" + repeated("X-a: b\r\n", 500'000),
      line = "GET /open HTTP/1.1\r\nX: " + std::string(4 << 20, 'a'),
      target = "GET /" + std::string(4 << 20, 'a'), body = std::string(4 << 20, ' '),
      chunk = "4000\r\n" + std::string(0x4000, ' ') + "\r\n",
      right = "Authorization: Bearer secret\r\n", json = "Content-Type: application/json\r\n",
      chunks = post_head("Transfer-Encoding: chunked\r\n" + json + right) + repeated(chunk, 200),
      ranges = "GET /page HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nRange: bytes=0-" +
               repeated(",0-", 1000) + "\r\n\r\n",
      declared = post_head("Content-Length: 4194304\r\n" + json) + body,
      zipped = post_head("Content-Length: 4194304\r\nContent-Encoding: gzip\r\n" + json) + body;
  for (const auto& [request, status] :
       std::vector<std::pair<const std::string*, int>>{{&lines, 431},
                                                       {&line, 431},
                                                       {&target, 431},
                                                       {&chunks, 413},
                                                       {&ranges, 200},
                                                       {&declared, 413},
                                                       {&zipped, 415}}) {
    std::string answer;
    const std::int64_t bytes = bytes_of([&] {
      const RawConnection connection(port_);
      connection.send(*request);
      answer = connection.receive(4096);
    });
    EXPECT_EQ(parse_answer(answer).status, status) << request->substr(0, 100);
    EXPECT_LT(bytes, 400'000) << request->substr(0, 100);
  }
}

// Clients that send a byte now and then, or nothing, keep no others out; and after a while they go.
TEST_F(ServerTest, AnswersWhileManyClientsSendSlowly) {
  serve({.connections = 4});
  const int most = 4 + HttpConnections::kWaiting;
  std::vector<std::unique_ptr<RawConnection>> slow;
  for (int i = 0; i < 3 * most; ++i) {
    slow.push_back(std::make_unique<RawConnection>(port_));
    slow.back()->send("GET /open HTTP/1.1\r\nHost: loc");
    if (i % 20 == 0) {
      EXPECT_EQ(http_get(port_, "/open").status, 200) << i;
    }
  }
  const std::string request =
      post_head("Content-Length: 65537\r\nContent-Type: application/json\r\n");
  const RawConnection late(port_), fast_enough(port_);
  late.send(request + "a");
  fast_enough.send(request + std::string(65536, ' '));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(http_get(port_, "/open").status, 200);
  clock_ = clock_ + 11;
  EXPECT_EQ(parse_answer(late.receive_all()).status, 408);
  EXPECT_EQ(parse_answer(slow.back()->receive_all()).status, 408);
  EXPECT_EQ(slow.front()->receive_all(), "") << "it made room for others";
  fast_enough.send(" ");
  EXPECT_THAT(fast_enough.receive(), HasSubstr("200 OK"));
}

TEST_F(ServerTest, AnswersOnlySoManyAtOnce) {
  serve({.connections = 4, .client_connections = 3});
  const std::string wait = request_text("GET", "/wait", "", {});
  std::vector<std::unique_ptr<RawConnection>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawConnection>(port_));
    clients.back()->send(wait);
  }
  until([&] { return waiting_ == 3; });
  const HttpAnswer refused = http_get(port_, "/of/");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("Retry-After"), "1");
  EXPECT_EQ(http_get(port_, "/open").status, 200) << "it is always answered";
  clients[0]->reset();
  until([&] { return held_ == 2; });
  EXPECT_EQ(http_get(port_, "/of/").status, 200);
  ended_ = true;
  ring();
  EXPECT_EQ(parse_answer(clients[1]->receive_all()).status, 200);
}

TEST_F(ServerTest, SaysWhyAnAnswerFailsBeforeItsFirstPiece) {
  serve();
  const RawConnection client(port_);
  client.send(request_text("GET", "/wait", "", {}));
  until([&] { return waiting_ == 1; });
  fails_ = true;
  ring();
  const HttpAnswer answer = parse_answer(client.receive_all());
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("no more"));
}

TEST_F(ServerTest, LetsAnAnswerGoWhenItsClientHangsUp) {
  serve();
  {
    const RawConnection client(port_);
    client.send(request_text("GET", "/wait", "", {}));
    until([&] { return held_ == 1; });
  }
  until([&] { return held_ == 0; });
  ring();  // of an answer that is no more
}

TEST_F(ServerTest, StopsWithRequestsThatAreNotWhole) {
  serve();
  std::vector<std::unique_ptr<RawConnection>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<RawConnection>(port_));
    clients.back()->send(i % 2 ? "GET /op" : request_text("GET", "/wait", "", {}));
  }
  until([&] { return waiting_ == 50; });
  server_->stop();
  EXPECT_EQ(held_, 0);
  for (const auto& client : clients) EXPECT_EQ(client->receive_all(), "");
  ring();  // of a server that is no more
}

namespace {

/// Answers of 64 pieces of 1 MiB.
class LargeAnswers : public ServerTest {
 protected:
  std::optional<std::string> piece() override {
    if (++pieces_ > 64) return std::nullopt;
    return std::string(1 << 20, 'a');
  }
  std::atomic<int> pieces_ = 0;
};

}  // namespace

TEST_F(LargeAnswers, WaitForSlowReaders) {
  serve();
  const RawConnection client(port_);
  const std::int64_t bytes = bytes_of([&] {
    client.send(request_text("GET", "/wait", "", {}));
    client.receive(100);
    until([&] {
      clock_ = clock_ + 0.1;
      return held_ == 0;
    });
  });
  EXPECT_LT(bytes, 6 << 20);
  EXPECT_LT(pieces_, 64) << "the sockets were full, and it read nothing for so long";
}
