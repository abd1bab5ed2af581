#include <gmock/gmock.h>
#include <omp.h>

/// oneDNN is not built for ThreadSanitizer, so the locks of its cache of primitives, which ranks
/// share, are not seen. Read by ThreadSanitizer alone.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libdnnl.so\ncalled_from_lib:libdnnl.so\nrace:dnnl::memory::desc\n";
}

/// One OpenMP thread a rank: ranks are threads here, and ThreadSanitizer does not know libgomp's
/// barriers, so a team of more would be reported as races that are none.
int main(int argc, char** argv) {
  omp_set_num_threads(1);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
