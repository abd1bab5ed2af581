// The board's API in this process, and its page under node and in Chromium where they are.
#include <cstdlib>
#include <functional>
#include <regex>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/board/board.h"

#include "tests/app/board/made_up_run.h"
#include "tests/support/build_paths.h"
#include "tests/support/http_client.h"
#include "tests/support/temporary_path.h"

namespace axonn {
extern const char kBoardPage[];
}

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

/// A board of a folder, and a client of it.
class BoardTest : public testing::Test {
 protected:
  /// `more` adds to the server before it starts.
  void serve(const std::vector<std::string>& paths, const std::string& token = "",
             const std::function<void(HttpServer&)>& more = {}) {
    board_ = std::make_unique<Board>(paths);
    server_ = std::make_unique<HttpServer>(HttpServer::Options{.port = 0, .token = token});
    add_board(*server_, *board_);
    if (more) more(*server_);
    port_ = server_->start();
  }
  HttpAnswer get(const std::string& path, const HttpHeaders& headers = {}) const {
    return http_get(port_, path, headers);
  }
  json answer(const std::string& path) const {
    const HttpAnswer result = get(path);
    AXONN_CHECK(result.status == 200, path, ": ", result.body);
    return json::parse(result.body);
  }
  int status(const std::string& path) const { return get(path).status; }

  test::TemporaryPath folder_;
  std::unique_ptr<Board> board_;
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
};

TEST_F(BoardTest, TellsTheStatesOfRunsInAFolder) {
  make_run(folder_ / "b", 10, 10);
  make_run(folder_ / "deeper/a", 5, 10, "0.1");
  serve({folder_.path(), folder_ / "later"});
  const json all = answer("/api/runs");
  ASSERT_EQ(all["runs"].size(), 2U);
  const json& b = all["runs"][0];
  EXPECT_EQ(b["name"], "b");
  EXPECT_EQ(b["state"], "ended");
  EXPECT_EQ(b["step"], 10);
  EXPECT_EQ(b["steps"], 10);
  EXPECT_DOUBLE_EQ(b["last"]["loss"], 0.4);
  EXPECT_EQ(b["last"]["val_loss"], 1.25);
  EXPECT_EQ(b["last"]["mfu"], nullptr);
  EXPECT_EQ(all["runs"][1]["name"], "deeper/a");
  EXPECT_EQ(all["runs"][1]["state"], "running");
  EXPECT_THAT(all["waiting"][0], HasSubstr("later does not exist yet"));
  EXPECT_FALSE(all["more"]);
  EXPECT_EQ(answer("/api/config?run=1")["config"]["optimizer.lr"], "0.1");
}

// A run may have been written into the folder that holds other runs.
TEST_F(BoardTest, ShowsARunAndTheRunsInItsFolder) {
  const std::string out = make_run(folder_ / "out", 2, 2);
  make_run(out + "/a", 1, 2);
  make_run(out + "/a/deeper", 1, 2);
  for (const char* part : {"/checkpoints/step-2", "/logs", "/nonfinite-step-3"})
    make_run(out + part, 0, 2);
  serve({out, folder_ / "later"});
  const json all = answer("/api/runs");
  const auto names = [](const json& of) {
    std::vector<std::string> found;
    for (const json& run : of["runs"]) found.push_back(run["name"]);
    return found;
  };
  EXPECT_THAT(names(all), ElementsAre("out", "a", "a/deeper"));
  EXPECT_THAT(all.dump(), Not(HasSubstr(folder_.path()))) << "no path of the machine";
  make_run(folder_ / "other/a", 1, 2);
  make_run(folder_ / "b/other/a", 1, 2);
  Board same({out, folder_ / "other", folder_ / "b/other"});
  EXPECT_THAT(names(json::parse(same.runs_json(0))),
              ElementsAre("out", "a", "a/deeper", "other/a", "other/a (2)"));
}

TEST_F(BoardTest, SendsOnlyNewRows) {
  const std::string run = make_run(folder_ / "run", 3, 10);
  serve({run});
  answer("/api/runs");
  const json all = answer("/api/rows?run=0");
  EXPECT_EQ(all["width"], 1);
  EXPECT_THAT(all["last_step"], ElementsAre(1, 2, 3));
  EXPECT_THAT(all["series"]["loss"]["mean"], ElementsAre(4.0, 2.0, 1.33333));
  EXPECT_FALSE(all["series"]["loss"].contains("low"));
  EXPECT_EQ(all["series"]["exposed_comm_ms/z"]["mean"][0], 2);
  append(run + "/metrics.jsonl", step_line(4, "null"));
  answer("/api/runs");
  const json added = answer("/api/rows?run=0&width=1&have=3");
  EXPECT_EQ(added["first"], 2);
  EXPECT_THAT(added["last_step"], ElementsAre(3, 4));
  EXPECT_EQ(added["series"]["loss"]["mean"][1], nullptr);
  EXPECT_THAT(answer("/api/rows?run=0&from=2&to=3")["last_step"], ElementsAre(2, 3));
  EXPECT_EQ(answer("/api/rows?run=0&width=64&have=99")["first"], 0) << "another width: all anew";
  EXPECT_TRUE(answer("/api/rows?run=0&from=50&to=60")["last_step"].empty());
  EXPECT_TRUE(answer("/api/rows?run=0&from=3&to=1")["last_step"].empty());
}

TEST_F(BoardTest, SendsTheSamplesOfAStepAndTheStepsThatHaveSome) {
  const std::string run = make_run(folder_ / "run", 3, 10);
  append(run + "/samples.jsonl", sample_line(2, "a") + sample_line(2, "b") + sample_line(3, "a"));
  serve({run});
  EXPECT_EQ(answer("/api/runs")["runs"][0]["sample_step"], 3);
  const json newest = answer("/api/samples?run=0"), older = answer("/api/samples?run=0&step=2");
  EXPECT_THAT(newest["steps"], ElementsAre(2, 3));
  EXPECT_EQ(newest["step"], 3);
  ASSERT_EQ(older["samples"].size(), 2U);
  EXPECT_EQ(older["samples"][1]["prompt"], "b");
  EXPECT_EQ(older["samples"][1]["text"], "\u00e9 after 2");
  EXPECT_EQ(older["samples"][1]["tokens"], 3);
  EXPECT_EQ(older["samples"][1]["end"], "max_tokens");
}

TEST_F(BoardTest, SendsAnswersWithTheirRewardsAmongTheSamples) {
  const std::string run = make_run(folder_ / "run", 3, 10);
  append(run + "/samples.jsonl", sample_line(2, "a"));
  std::filesystem::create_directory(run + "/rollouts");
  append(run + "/rollouts/step-000001.jsonl",
         R"({"prompt": "1+1=", "completion": "2", "rewards": {"number": 1, "short": null}, )"
         R"("advantage": 0.5, "truncated": false, "completion_ids": [50, 10]})"
         "\nno JSON\n");
  append(run + "/rollouts/step-000003.jsonl",
         R"({"prompt": "1+2=", "completion": "4", "rewards": {"number": 0}, "advantage": -1, )"
         R"("truncated": true, "completion_ids": [52]})"
         "\n");
  append(run + "/rollouts/other.jsonl", "{}\n");
  serve({run});
  EXPECT_EQ(answer("/api/runs")["runs"][0]["sample_step"], 3);
  const json first = answer("/api/samples?run=0&step=1"), last = answer("/api/samples?run=0");
  EXPECT_THAT(first["steps"], ElementsAre(1, 2, 3));
  ASSERT_EQ(first["samples"].size(), 1U) << "a damaged line is none";
  EXPECT_EQ(first["samples"][0],
            json::parse(R"({"prompt": "1+1=", "text": "2", "tokens": 2, "end": "stop_token",
                            "advantage": 0.5, "rewards": [["number", 1], ["short", null]]})"));
  EXPECT_EQ(answer("/api/samples?run=0&step=2")["samples"][0]["prompt"], "a");
  EXPECT_EQ(last["samples"][0]["end"], "max_tokens");
  EXPECT_EQ(last["samples"][0]["rewards"][0][1], 0);
}

TEST_F(BoardTest, RefusesWhatIsNoRun) {
  serve({make_run(folder_ / "run", 1, 10)});
  answer("/api/runs");
  for (const char* path :
       {"/api/rows", "/api/rows?run=1", "/api/rows?run=-1", "/api/rows?run=0x", "/api/rows?run=..",
        "/api/rows?run=99999999999999999999", "/api/rows?run=0&have=-1", "/api/config?run=7",
        "/api/config?run=/etc/passwd", "/api/samples?run=1", "/api/samples?run=0&step=x"})
    EXPECT_EQ(status(path), 400) << path;
  for (const char* path : {"/run/metrics.jsonl", "/../etc/passwd", "/api"})
    EXPECT_EQ(status(path), 404) << path;
}

TEST_F(BoardTest, ShowsAtMostSoManyRuns) {
  for (std::size_t i = 0; i < Board::kMostRuns + 2; ++i)
    make_run(folder_ / std::to_string(i), 0, 1);
  Board board({folder_.path()});
  const json all = json::parse(board.runs_json(std::time(nullptr)));
  EXPECT_EQ(all["runs"].size(), Board::kMostRuns);
  EXPECT_EQ(all["left_out"], 2);
}

TEST_F(BoardTest, TakesARunOnceAndNoFile) {
  const std::string run = make_run(folder_ / "run", 1, 1);
  Board board({run + "/", folder_ / ".//run"});
  const json all = json::parse(board.runs_json(std::time(nullptr)));
  ASSERT_EQ(all["runs"].size(), 1U);
  EXPECT_EQ(all["runs"][0]["name"], "run");
  EXPECT_THAT([&] { Board({run + "/metrics.jsonl"}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("is a file; name the folder")));
}

TEST_F(BoardTest, AsksForTheTokenExceptForThePage) {
  serve({folder_.path()}, "secret");
  EXPECT_EQ(status("/"), 200);
  EXPECT_EQ(status("/api/runs"), 401);
  EXPECT_EQ(get("/api/runs", {{"Authorization", "Bearer secret"}}).status, 200);
}

TEST_F(BoardTest, ThePageLoadsNothingElse) {
  serve({folder_.path()});
  const std::string page = get("/").body;
  for (const char* part : {"src=", "@import", "<link rel=\"style", "innerHTML", "https:"})
    EXPECT_THAT(page, Not(HasSubstr(part)));
  EXPECT_THAT(page, HasSubstr("function drawChart"));
  EXPECT_THAT(page, HasSubstr("function follow"));
}

TEST(BoardScript, PassesItsTestsUnderNode) {
  if (std::system("command -v node >/dev/null") != 0)
    GTEST_SKIP() << "node was not found (Debian package nodejs)";
  const std::string command =
      "node " + test::source_folder() + "/tests/app/board/page_script_test.js 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

/// Notes what the page looks like, and its errors, as attributes of its root.
constexpr const char* kProbe = R"(
<script>
const seen = document.documentElement;
const note = (name, value) => seen.setAttribute("data-" + name, value);
window.addEventListener("error", (event) => note("error", event.message));
window.addEventListener("unhandledrejection", (event) => note("error", event.reason));
document.addEventListener("securitypolicyviolation", (event) => note("error", event.blockedURI));
setTimeout(() => {
  const style = getComputedStyle(document.body);
  note("colors", style.color + " on " + style.backgroundColor);
  note("outside", Math.max(0, seen.scrollWidth - innerWidth));
  const cells = [...document.querySelectorAll('#runs, #runs tbody > tr > *')];
  const cut = cells.filter((one) =>
    one.scrollWidth > one.clientWidth + 1 || one.getBoundingClientRect().right > innerWidth);
  note("cut", cut.map((one) => one.textContent).join("|"));
  note("columns", getComputedStyle(byId("charts")).gridTemplateColumns.split(" ").length);
  const plot = document.querySelector("#chart-loss svg.plot");
  const box = plot.getBoundingClientRect();
  const clipped = [...plot.querySelectorAll("text")].filter((one) => {
    const at = one.getBoundingClientRect();
    return at.left < box.left - 8 || at.right > box.right + 8 || at.bottom > box.bottom + 4;
  });
  note("clipped", clipped.length);
  plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.right - 13}));
  note("tip", document.querySelector("#chart-loss .tip").textContent);
  document.querySelector("#legend button").click();
  note("curves-left", document.querySelectorAll("#chart-loss .plot .curve").length);
  document.querySelector("#legend button").click();
}, 1500);
</script>
)";

class BoardInChromium : public BoardTest {
 protected:
  /// The document after the page has drawn.
  std::string shown(const std::string& flags) {
    const std::string command =
        concat("timeout 60 chromium --headless=new --no-sandbox --disable-gpu ",
               "--disable-dev-shm-usage --no-first-run --disable-background-networking ",
               "--virtual-time-budget=3000 --dump-dom --user-data-dir=", folder_ / "profile", ' ',
               flags, " http://127.0.0.1:", port_, "/probe >", folder_ / "dom.html", " 2>",
               folder_ / "errors.txt");
    EXPECT_EQ(std::system(command.c_str()), 0) << test::slurp(folder_ / "errors.txt");
    return test::slurp(folder_ / "dom.html");
  }
  static std::string noted(const std::string& dom, const std::string& name) {
    std::smatch found;
    const std::string tag = dom.substr(0, dom.find("<head"));
    return std::regex_search(tag, found, std::regex(" data-" + name + "=\"([^\"]*)\""))
               ? found[1].str()
               : "-";
  }
  void SetUp() override {
    if (std::system("command -v chromium >/dev/null") != 0)
      GTEST_SKIP() << "chromium was not found (Debian package chromium)";
    make_run(folder_ / "runs/a", 20, 20);
    make_run(folder_ / "runs/b", 7, 1'000'000, "0.1");
    append(folder_ / "runs/b/metrics.jsonl", step_line(8, "null"));
    append(folder_ / "runs/a/samples.jsonl", sample_line(5, "Once") + sample_line(9, "Once"));
    append(folder_ / "runs/b/samples.jsonl", sample_line(7, "Once") + sample_line(7, "<i>Twice"));
    serve({folder_ / "runs"}, "", [](HttpServer& server) {
      server.get("/probe", [](const HttpRequest&, HttpResponse& response) {
        std::string page = kBoardPage;
        page.insert(page.find("<script>"), kProbe);
        response.type = "text/html";
        response.body = page;
      });
    });
  }
};

TEST_F(BoardInChromium, ShowsRunsInLightDarkAndNarrow) {
  const std::string light =
      shown("--window-size=1400,1200 --blink-settings=preferredColorScheme=1");
  EXPECT_EQ(noted(light, "error"), "-");
  EXPECT_EQ(noted(light, "colors"), "rgb(29, 33, 38) on rgb(253, 253, 251)");
  EXPECT_EQ(noted(light, "outside"), "0");
  EXPECT_EQ(noted(light, "cut"), "");
  EXPECT_EQ(noted(light, "columns"), "3");
  EXPECT_EQ(noted(light, "clipped"), "0");
  EXPECT_THAT(noted(light, "tip"), HasSubstr("step 20a0.2a, validation1.25"));
  EXPECT_EQ(noted(light, "curves-left"), "2") << "b's losses and validation";
  for (const char* part : {"20 of 20", "8 of 1,000,000", "optimizer.lr", "Exposed communication",
                           "chart-memory_bytes", "class=\"nan\"", "8.601 MiB", "\u00e9 after 9",
                           "\u00e9 after 7", "&lt;i&gt;Twice", "after step 7: 3 tokens"})
    EXPECT_THAT(light, HasSubstr(part));

  const std::string dark = shown("--window-size=320,900 --blink-settings=preferredColorScheme=0");
  EXPECT_EQ(noted(dark, "error"), "-");
  EXPECT_EQ(noted(dark, "colors"), "rgb(231, 233, 236) on rgb(20, 23, 27)");
  EXPECT_EQ(noted(dark, "outside"), "0");
  EXPECT_EQ(noted(dark, "cut"), "");
  EXPECT_EQ(noted(dark, "columns"), "1");
  EXPECT_EQ(noted(dark, "clipped"), "0");
}

}  // namespace
