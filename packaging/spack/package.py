from spack.package import *


class Axonn(CMakePackage, CudaPackage, ROCmPackage):
    """Trains and fine-tunes large language models with the 4D algorithm of AxoNN, on any grid of
    CPUs or GPUs, with the same losses on all of them. A C++20 library and a program."""

    # Set homepage and git to those of the source that you use.
    homepage = "https://arxiv.org/abs/2502.08145"

    license("Apache-2.0")

    version("0.2.0", tag="v0.2.0")
    version("main", branch="main")

    variant("mpi", default=True, description="Ranks may be MPI processes")
    variant("cudnn", default=True, when="+cuda", description="Attention by cuDNN")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("onednn@2.6: cpu_runtime=omp")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("tomlplusplus@3.3:")
    depends_on("cli11@2.1:")
    depends_on("boost@1.74:")
    depends_on("pcre2")
    depends_on("icu4c")
    depends_on("sentencepiece@0.1.97:")
    depends_on("xxhash@0.8:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("bzip2")
    depends_on("xz")
    depends_on("snappy")
    depends_on("lz4")
    depends_on("brotli")
    depends_on("mpi", when="+mpi")
    depends_on("googletest@1.12: +gmock", type="test")

    with when("+cuda"):
        depends_on("cuda@12.4:")
        depends_on("nccl")
        depends_on("cudnn@9.10:", when="+cudnn")
    with when("+rocm"):
        depends_on("hip@6:")
        depends_on("hipblaslt@6:")
        depends_on("rccl@6:")

    conflicts("%gcc@:11", msg="axonn needs C++20 as of g++ 12")
    conflicts("+cuda", when="+rocm", msg="axonn builds for one kind of GPU")

    def cmake_args(self):
        spec = self.spec
        args = [
            self.define_from_variant("AXONN_MPI", "mpi"),
            self.define("AXONN_CUDA", "ON" if spec.satisfies("+cuda") else "OFF"),
            self.define("AXONN_HIP", "ON" if spec.satisfies("+rocm") else "OFF"),
            self.define("AXONN_TESTS", self.run_tests),
            # Spack's compiler wrapper adds the -march of the package's target to every compilation.
            self.define("AXONN_MARCH", "default"),
        ]
        if spec.satisfies("+cuda"):
            args.append(self.define_from_variant("AXONN_CUDNN", "cudnn"))
            args.append(self.define("AXONN_CUDA_ARCH", spec.variants["cuda_arch"].value))
        if spec.satisfies("+rocm"):
            args.append(self.define("AXONN_HIP_ARCH", spec.variants["amdgpu_target"].value))
        return args
