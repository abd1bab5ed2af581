#include <gmock/gmock.h>
#include <omp.h>

/// One OpenMP thread a rank: ranks are threads here, and ThreadSanitizer does not know libgomp's
/// barriers, so a team of more would be reported as races that are none.
int main(int argc, char** argv) {
  omp_set_num_threads(1);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
