#include <cstdio>

#include <gmock/gmock.h>
#include <omp.h>
#include <sys/resource.h>

namespace {

/// Processor seconds of this process and of its children that have ended.
double processor_seconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used = {};
    getrusage(who, &used);
    for (const timeval& time : {used.ru_utime, used.ru_stime})
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return seconds;
}

/// Prints the processor seconds of each test that takes at least one: unlike GoogleTest's wall time
/// they are the same on a busy machine. scripts/testing adds them up.
class ProcessorTimes : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { begin_ = processor_seconds(); }
  void OnTestEnd(const testing::TestInfo& test) override {
    const double seconds = processor_seconds() - begin_;
    if (seconds >= 1)
      std::printf("[      CPU ] %s.%s (%.1f s)\n", test.test_suite_name(), test.name(), seconds);
  }

  double begin_ = 0;
};

}  // namespace

/// Suppressions for ThreadSanitizer. oneDNN is not built for it, so it does not see the locks of
/// oneDNN's primitive cache, which the ranks share.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libdnnl.so\ncalled_from_lib:libdnnl.so\nrace:dnnl::memory::desc\n";
}

/// Uses one OpenMP thread per rank. Ranks are threads here, and ThreadSanitizer does not know
/// libgomp's barriers, so it would report false races for larger teams.
int main(int argc, char** argv) {
  omp_set_num_threads(1);
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new ProcessorTimes);
  return RUN_ALL_TESTS();
}
