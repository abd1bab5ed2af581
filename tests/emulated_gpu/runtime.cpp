#include "tests/emulated_gpu/platform.h"
