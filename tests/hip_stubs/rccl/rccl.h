#pragma once

// The names of RCCL that the project uses, for target hip_compile_check: Debian has no RCCL.
// Source: "RCCL library specification" of ROCm 6; they are NCCL's, with HIP's streams.

#include <cstddef>

#include <hip/hip_runtime_api.h>

inline constexpr int NCCL_SPLIT_NOCOLOR = -1;

typedef struct ncclComm* ncclComm_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef enum { ncclSuccess, ncclInProgress } ncclResult_t;
typedef enum { ncclSum, ncclMax, ncclMin } ncclRedOp_t;
typedef enum {
  ncclUint8,
  ncclInt32,
  ncclInt64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16,
} ncclDataType_t;
typedef struct {
  std::size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char* netName;
  int splitShare;
} ncclConfig_t;
inline constexpr ncclConfig_t NCCL_CONFIG_INITIALIZER = {};

extern "C" {

ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

ncclResult_t ncclAllReduce(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclAllGather(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclReduceScatter(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclBroadcast(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclSend(const void* inp, std::size_t count, ncclDataType_t type, int to,
                      ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      hipStream_t stream);
}
