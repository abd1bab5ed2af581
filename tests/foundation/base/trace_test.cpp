#include "axonn/foundation/base/trace.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/clock.h"

using namespace axonn;

TEST(Trace, IsJsonWhateverTheNamesAre) {
  Trace trace;
  trace.span(Trace::kCompute, "before the start", Moment(0), Moment(1));
  trace.start();
  const double now = now_seconds();
  trace.span(Trace::kCompute, "a \"layer\"", Moment(now), Moment(now + 1));
  trace.span("x\\y", "sum\n", Moment(now), Moment(now + 2));
  const auto json = nlohmann::json::parse(trace_file({trace.events(3, "rank \"3\"")}));
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 6u) << "a process, two rows, a span, and two ends of another";
  EXPECT_EQ(events[0]["args"]["name"], "rank \"3\"");
  EXPECT_EQ(events[2]["args"]["name"], "x\\y");
  EXPECT_EQ(events[3]["name"], "a \"layer\"");
  EXPECT_NEAR(events[3]["dur"].get<double>(), 1e6, 1);
  EXPECT_EQ(events[4]["cat"], "x\\y");
  EXPECT_EQ(events[4]["name"], "sum\n");
  EXPECT_EQ(events[4]["ph"], "b");
  EXPECT_EQ(events[5]["ph"], "e");
  EXPECT_EQ(events[4]["id"], events[5]["id"]);
}
