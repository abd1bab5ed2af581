"""The parts of the tests, in the order of their importance.

The seconds of a part are those of a quiet machine with two cores of an AMD EPYC (Zen 5), from
nothing: no compiler cache, no earlier build.
"""

from dataclasses import dataclass, field

from schedule import Part


@dataclass(frozen=True)
class Tests:
    """Builds targets of a CMake preset, then runs ctest there.

    programs: the tests to run; (): those that ctest's arguments select. nightly: those that run too
    if all tests are asked for. targets: (): the programs, or everything. few: a GoogleTest filter
    that saves time; "": all tests. under: a command that runs ctest. system: number of the Debian
    version to run in; "": this one. jobs: tests that run at once, more than cores where they sleep.
    """

    preset: str
    programs: tuple = ()
    nightly: tuple = ()
    targets: tuple = ()
    ctest: tuple = ()
    few: str = ""
    environment: dict = field(default_factory=dict)
    under: tuple = ()
    system: str = ""
    jobs: int = 2


@dataclass(frozen=True)
class Script:
    """A command that is a test of its own. Exit code 77: skipped."""

    command: tuple


def all_but(patterns):
    """A GoogleTest filter of all tests but those that match the patterns."""
    return "-" + ":".join(patterns.split())


def only(patterns):
    """A GoogleTest filter of the tests that match the patterns."""
    return ":".join(patterns.split())


# Under sanitizers everything takes ten times as long. Tests of grids use few of them there
# (tests/support/sanitized.h). Left out are tests that repeat the same code, to compare more
# numbers, to count bytes or until a model has learned.
COMPARES_NUMBERS = """
    Memory* ManyRanks* *TrainingLowers* *TrainingLearns* GptOnGrids.LossesDoNot*
    *ChunksRecomputationAnd* WriteTensors.LargeTensors* Padding* FaultsOfAGrid*
    Context.ChunksAndAccumulation* OptimizersOnGrids.Neither* LlamaOnGrids.Apertus*
    LlamaOnGrids.Bfloat16* ExpertChoices* Context.NeitherOverlap* Context.DocumentsAndWindows*
    Context.AWindow* Context.SomeRanks* Context.BatchMay* Context.AdaptersDrop* Context.GptHas*
    Context.LlamaHas* Context.LostKeys* Context.Bfloat16* Experts.AndShared* Experts.ChunksAnd*
    Experts.OfEvery* TokenizeCached.Continues* JsonlDocuments.Continue* Convert.ToACheckpoint*
    DamagedCheckpoint.IsRefusedWith*
"""
# Orders of events in which ThreadSanitizer may find a race, and AddressSanitizer nothing more.
ORDERS = """
    DeviceThreads.RunEvery* StagedCommunicator.RunsEvery* PeerWork.GivesThe* Experts.BiasMoves*
"""
# Of the models' tests, ThreadSanitizer runs those in which ranks run late or recompute blocks.
NO_RANKS = """
    *FamilyReference* ModelConfig* Experts.OfOther* Experts.Bal* Experts.Bias* Experts.Chunks*
    Experts.A* Experts.Bfloat16* Experts.Rows* *RouterLosses* Layers.Gradients* GptOnGrids.No*
"""
# Kernels that have barriers, and NCCL.
BARRIERS = """
    Softmax* CrossEntropy.Equals* LayerNorm.* Embedding* CachedAttention.TakesSeveral*
    CachedAttention.OfLong* Attention.WithStarts* CudaGraph* OnGpus.NcclGives*
"""
# What depends on the number of lanes of a warp: matrix instructions, sums over a block.
WARPS = "Executor.* Attention.* QueryBlocks.* *Norm*"
SANITIZED = {"AXONN_TEST_SANITIZED": "1"}
# What handles memory by hand, or reads what others have written.
MEMORY = tuple(
    f"{folder}_test"
    for folder in "base options tensor grid ops ops_threads comm parallel nn text corpus storage "
    "convert serve fuzz_corpus".split()
)
RANKS = ("comm_test", "parallel_test", "model_test")
# ThreadSanitizer needs fixed shadow addresses, which address randomisation may take.
FIXED_ADDRESSES = ("scripts/testing/fixed-addresses.sh",)

PARTS = [
    Part(
        "dev",
        "all unit tests, optimised, with the CUDA backend if CUDA is found",
        build=405,
        test=220,
        needed=True,
        run=Tests("dev", ctest=("-L", "unit")),
    ),
    Part(
        "format",
        "the format of the sources",
        build=0,
        test=4,
        run=Script(("scripts/format.sh", "--check")),
    ),
    Part(
        "programs",
        "the commands, MPI, files that other tools read, the Python package, the installed library",
        build=1,
        test=185,
        run=Tests("dev", ctest=("-L", "mpi|files|python|slow|instructions"), jobs=3),
    ),
    Part(
        "asan",
        "the library and files under AddressSanitizer and UndefinedBehaviorSanitizer",
        build=315,
        test=92,
        # These tests do not use MPI, so leaks in the MPI library are not reported.
        run=Tests(
            "asan",
            programs=MEMORY,
            nightly=("model_test", "train_test", "infer_test"),  # run the same code at length
            few=all_but(COMPARES_NUMBERS + ORDERS),
            environment=SANITIZED,
        ),
    ),
    Part(
        "tsan",
        "communication, parallel layers and models under ThreadSanitizer",
        build=165,
        test=100,
        run=Tests(
            "tsan",
            programs=RANKS,
            few=all_but(COMPARES_NUMBERS + NO_RANKS),
            environment=SANITIZED,
            under=FIXED_ADDRESSES,
        ),
    ),
    Part(
        "emulated",
        "the CUDA backend, NCCL's transport and trainings on GPUs that the CPU emulates",
        build=93,
        test=61,
        run=Tests("emulated", targets=("gpu_tests",), ctest=("-L", "gpu")),
    ),
    Part(
        "dispatch",
        "operations and a short training with the kernels of packages, for each set of "
        "instructions that the processor has; the packages",
        build=120,
        test=63,
        # All but the kernels comes from the compiler cache.
        run=Tests(
            "dispatch",
            targets=("axonn", "ops_test", "ops_threads_test"),
            ctest=("-R", "^(ops|ops_threads)_test|^check_|^packages_"),
        ),
    ),
    Part(
        "aarch64",
        "operations, trainings and checkpoints on emulated 64-bit ARM, beside this machine's",
        build=0,
        test=900,
        run=Script(("scripts/testing/aarch64.sh",)),
        nightly=True,  # from nothing a quarter of an hour; with a compiler cache two minutes
    ),
    Part(
        "attacks",
        "kills, failing system calls, damaged files, full disks, hostile requests, random "
        "trainings, Slurm",
        build=1,
        test=140,
        run=Tests("dev", ctest=("-L", "attack"), jobs=3),
    ),
    Part(
        "emulated-tsan",
        "operations and collectives on emulated GPUs under ThreadSanitizer",
        build=65,
        test=25,
        # Tests of each kernel that has barriers, and NCCL. ThreadSanitizer does not know the
        # barriers of OpenMP's threads.
        run=Tests(
            "emulated-tsan",
            targets=("ops_cuda_test", "comm_cuda_test", "emulated_races"),
            programs=("ops_cuda_test", "comm_cuda_test", "emulated_races_test"),
            few=only(BARRIERS),
            environment=SANITIZED | {"OMP_THREAD_LIMIT": "1"},
            under=FIXED_ADDRESSES,
        ),
        nightly=True,  # for those who change kernels
    ),
    Part(
        "emulated-amd",
        "attention and norms with the warps and matrix instructions of AMD GPUs, emulated",
        build=40,
        test=30,
        run=Tests(
            "emulated-amd",
            programs=("emulated_gpu_test", "ops_cuda_test"),
            few=only(WARPS),
        ),
        nightly=True,
    ),
    Part(
        "benchmarks",
        "the programs of bench/ compile",
        build=0,
        test=60,
        run=Script(("scripts/build.sh", "dispatch", "bench/all")),
        nightly=True,
    ),
    Part(
        "hip-check",
        "the GPU backend compiled for AMD GPUs",
        build=0,
        test=38,
        run=Script(("scripts/testing/hip-check.sh",)),
    ),
    Part(
        "sbsa-check",
        "the CUDA backend compiled for hosts of 64-bit ARM",
        build=0,
        test=200,
        run=Script(("scripts/testing/sbsa-check.sh",)),
        nightly=True,
    ),
    Part(
        "debian-13",
        "operations and MPI in Debian 13, with newer libraries and compiler",
        build=100,
        test=10,
        run=Tests("dev", programs=("ops_test", "comm_mpi_program"), system="13"),
    ),
    Part(
        "aarch64-program",
        "trainings and checkpoints on emulated 64-bit ARM, beside this machine's",
        build=0,
        test=340,
        run=Script(("scripts/testing/aarch64.sh", "program")),
    ),
    Part(
        "debian-13-training",
        "a short training in Debian 13",
        build=140,
        test=5,
        run=Tests("dev", targets=("axonn",), programs=("check_f32", "check_bf16"), system="13"),
        nightly=True,
    ),
]
