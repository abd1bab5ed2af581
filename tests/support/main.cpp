#include <gmock/gmock.h>
#include <omp.h>

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
  return RUN_ALL_TESTS();
}
