// Stands in for peer_kernels.cu where the library is built without CUDA and HIP.
#include "axonn/comm/peer_work.h"

namespace axonn {

std::shared_ptr<PeerKernels> make_peer_kernels(Communicator&, Device&) { return nullptr; }

}  // namespace axonn
