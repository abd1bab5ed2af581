#include "axonn/ranks/comm/network_rules.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/ranks/comm/adapters.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using axonn::test::TemporaryPath;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Kind = NetworkAdvice::Kind;
using Variables = std::map<std::string, std::string>;

namespace {

NetworkFacts given(NetworkFacts facts, Variables variables) {
  variables.try_emplace("NCCL_LAUNCH_ORDER_IMPLICIT", "1");  // the device has set it
  facts.variable = [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return facts;
}

const NetworkFacts kAlps = {.gpu = "NVIDIA GH200 120GB",
                            .collectives = "NCCL",
                            .version = "2.27.3",
                            .slingshot = true,
                            .several_hosts = true};
const NetworkFacts kFrontier = {
    .gpu = "AMD Instinct MI250X", .collectives = "RCCL", .version = "2.26.6", .slingshot = true};
const NetworkFacts kPerlmutter = {
    .gpu = "NVIDIA A100-SXM4-40GB", .collectives = "NCCL", .version = "2.29.2", .slingshot = true};

const std::string kNet = "AWS Libfabric";

/// What the rules of one variable say.
std::vector<NetworkAdvice> about(const std::string& variable, const NetworkFacts& facts) {
  std::vector<NetworkAdvice> all = network_advice(facts);
  std::erase_if(all, [&](const auto& one) { return one.rule->variable != variable; });
  return all;
}

/// How the rules of one variable treat these facts.
std::vector<Kind> kinds(const std::string& variable, const NetworkFacts& facts) {
  std::vector<Kind> all;
  for (const NetworkAdvice& one : about(variable, facts)) all.push_back(one.kind);
  return all;
}

}  // namespace

TEST(NetworkRules, Ll128IsSwitchedOffOnGh200WithSlingshotFromNccl2273On) {
  EXPECT_THAT(kinds("NCCL_PROTO", given(kAlps, {})), ElementsAre(Kind::set));
  EXPECT_THAT(about("NCCL_PROTO", given(kAlps, {})).front().text,
              AllOf(StartsWith("NCCL_PROTO=^LL128 is set: "), HasSubstr("nccl/issues/2001")));
  for (const char* version : {"2.27.7", "2.28.3", "3.0.0"}) {
    NetworkFacts newer = kAlps;
    newer.version = version;
    EXPECT_THAT(kinds("NCCL_PROTO", given(newer, {})), ElementsAre(Kind::set)) << version;
  }
  for (const char* version : {"2.27.2", "2.26.6", "unknown", ""}) {
    NetworkFacts older = kAlps;
    older.version = version;
    EXPECT_THAT(kinds("NCCL_PROTO", given(older, {})), IsEmpty()) << version;
  }
  NetworkFacts one_host = kAlps, infiniband = kAlps, hopper = kAlps;
  one_host.several_hosts = infiniband.slingshot = false;
  hopper.gpu = "NVIDIA H100 80GB HBM3";
  for (const NetworkFacts& other : {one_host, infiniband, hopper, kFrontier, kPerlmutter})
    EXPECT_THAT(kinds("NCCL_PROTO", given(other, {})), IsEmpty());
}

TEST(NetworkRules, ValuesOfNcclProtoThatAllowLl128AreRefused) {
  for (const char* value : {"LL128", "LL,LL128,Simple", "simple,ll128", "^LL", "^Simple,LL"})
    EXPECT_THAT(kinds("NCCL_PROTO", given(kAlps, {{"NCCL_PROTO", value}})),
                ElementsAre(Kind::refuse))
        << value;
  for (const char* value : {"^LL128", "^ll128,LL", "Simple", "LL,Simple", "LL"})
    EXPECT_THAT(kinds("NCCL_PROTO", given(kAlps, {{"NCCL_PROTO", value}})), IsEmpty()) << value;
  EXPECT_THAT(kinds("NCCL_PROTO", given(kAlps, {{"NCCL_LL128_C2C", "0"}})), IsEmpty());
  EXPECT_THAT(
      [] {
        obey_network_rules(given(kAlps, {{"NCCL_PROTO", "LL128"}}));
      },
      testing::ThrowsMessage<UsageError>(
          StartsWith("NCCL_PROTO is \"LL128\"; export NCCL_PROTO=^LL128: ")));
}

TEST(NetworkRules, WithoutTheNameOfThePluginARunOnSlingshotMayUseSockets) {
  for (NetworkFacts facts : {kAlps, kFrontier, kPerlmutter}) {
    facts.several_hosts = true;
    EXPECT_THAT(kinds("NCCL_NET", given(facts, {})), ElementsAre(Kind::warn));
    EXPECT_THAT(kinds("NCCL_NET", given(facts, {{"NCCL_NET", "Socket"}})), ElementsAre(Kind::warn));
    EXPECT_THAT(kinds("NCCL_NET", given(facts, {{"NCCL_NET", kNet}})), IsEmpty());
  }
  EXPECT_THAT(about("NCCL_NET", given(kAlps, {})).front().text,
              StartsWith("NCCL_NET is not set; export NCCL_NET=\"AWS Libfabric\": "));
}

TEST(NetworkRules, OnOneHostRcclUsesSocketsOnSlingshot) {
  EXPECT_THAT(kinds("NCCL_NET", given(kFrontier, {})), ElementsAre(Kind::set));
  EXPECT_THAT(kinds("NCCL_NET", given(kFrontier, {{"NCCL_NET", kNet}})), ElementsAre(Kind::warn));
  EXPECT_THAT(kinds("NCCL_NET", given(kFrontier, {{"NCCL_NET", "Socket"}})), IsEmpty());
  EXPECT_THAT(kinds("NCCL_NET", given(kPerlmutter, {})), IsEmpty());
}

TEST(NetworkRules, MpiOnGpuMemoryBesideNcclIsWarnedOf) {
  const std::string name = "MPICH_GPU_SUPPORT_ENABLED";
  EXPECT_THAT(kinds(name, given(kPerlmutter, {{name, "1"}})), ElementsAre(Kind::warn));
  EXPECT_THAT(kinds(name, given(kPerlmutter, {{name, "0"}})), IsEmpty());
  EXPECT_THAT(kinds(name, given(kPerlmutter, {})), IsEmpty());
}

TEST(NetworkRules, TheUsualOrderOfGpusOnPerlmutterIsWarnedOf) {
  const std::string name = "CUDA_VISIBLE_DEVICES", host = "NERSC_HOST";
  const auto on = [&](Variables more) {
    more[host] = "perlmutter";
    return kinds(name, given(kPerlmutter, std::move(more)));
  };
  EXPECT_THAT(on({}), ElementsAre(Kind::warn));
  EXPECT_THAT(on({{name, "0,1,2,3"}}), ElementsAre(Kind::warn));
  EXPECT_THAT(on({{name, "3,2,1,0"}}), IsEmpty());
  EXPECT_THAT(on({{name, "2"}}), IsEmpty()) << "a launcher shows each rank one GPU";
  EXPECT_THAT(kinds(name, given(kPerlmutter, {})), IsEmpty()) << "not on Perlmutter";
}

TEST(NetworkRules, AnOrderOfLaunchesThatMayDeadlockIsWarnedOf) {
  const std::string name = "NCCL_LAUNCH_ORDER_IMPLICIT";
  EXPECT_THAT(kinds(name, given({}, {{name, "0"}})), ElementsAre(Kind::warn));
  EXPECT_THAT(kinds(name, given({}, {{name, ""}})), ElementsAre(Kind::set));
  EXPECT_THAT(kinds(name, given({}, {{name, "1"}})), IsEmpty());
}

TEST(NetworkRules, VariablesAreSetOnceAndThenAccepted) {
  unsetenv("NCCL_PROTO");
  setenv("NCCL_NET", kNet.c_str(), 1);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
  EXPECT_THAT(obey_network_rules(kAlps), ElementsAre(StartsWith("NCCL_PROTO=^LL128 is set")));
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "^LL128");
  EXPECT_THAT(obey_network_rules(kAlps), IsEmpty());
  for (const char* name : {"NCCL_PROTO", "NCCL_NET", "NCCL_LAUNCH_ORDER_IMPLICIT"}) unsetenv(name);
}

TEST(NetworkRules, EachNamesItsSourceAndAcceptsItsOwnValue) {
  for (const NetworkRule& rule : network_rules()) {
    EXPECT_FALSE(rule.source.empty() || rule.reason.empty()) << rule.variable;
    for (const NetworkFacts& facts : {kAlps, kFrontier, kPerlmutter})
      EXPECT_TRUE(rule.accepts(given(facts, {}), rule.value) || !rule.concerns(facts))
          << rule.variable;
  }
}

TEST(NetworkAdapters, AreReadAsTheSystemDescribesThem) {
  const TemporaryPath root;
  const auto put = [&](const std::string& path, const std::string& text) {
    const auto file = std::filesystem::path(root.path()) / "sys/class" / path;
    std::filesystem::create_directories(file.parent_path());
    write_file_atomically(file.string(), text);
  };
  const auto interface = [&](const std::string& name, const std::string& speed,
                             const std::string& state, bool hardware) {
    put("net/" + name + "/speed", speed);
    put("net/" + name + "/operstate", state);
    if (hardware) put("net/" + name + "/device/vendor", "0x17db\n");
  };
  EXPECT_THAT(network_adapters(root.path()), IsEmpty());
  interface("hsn1", "200000\n", "up\n", true);
  interface("hsn0", "100000\n", "up\n", true);
  interface("hsn2", "-1\n", "down\n", true);
  interface("eth0", "-1\n", "up\n", true);
  interface("lo", "", "unknown\n", false);
  interface("docker0", "10000\n", "up\n", false);
  EXPECT_THAT(network_adapters(root.path()),
              ElementsAre(NetworkAdapter{"eth0", "Ethernet", 0},
                          NetworkAdapter{"hsn0", "Slingshot", 12.5e9},
                          NetworkAdapter{"hsn1", "Slingshot", 25e9}));
  EXPECT_TRUE(has_slingshot(network_adapters(root.path())));

  const TemporaryPath other;
  const auto classes = std::filesystem::path(other.path()) / "sys/class";
  const auto card = std::filesystem::path(other.path()) / "sys/card";
  std::filesystem::create_directories(card);
  for (const char* port : {"1", "2"}) {
    const auto folder = classes / "infiniband/mlx5_0/ports" / port;
    std::filesystem::create_directories(folder);
    write_file_atomically((folder / "rate").string(), "400 Gb/sec (4X NDR)\n");
    write_file_atomically((folder / "state").string(), *port == '1' ? "4: ACTIVE\n" : "1: DOWN\n");
  }
  std::filesystem::create_directories(classes / "net/ib0");
  for (const char* name : {"infiniband/mlx5_0", "net/ib0"})
    std::filesystem::create_directory_symlink(card, classes / name / "device");
  write_file_atomically((classes / "net/ib0/operstate").string(), "up\n");
  write_file_atomically((classes / "net/ib0/speed").string(), "400000\n");
  EXPECT_THAT(network_adapters(other.path()),
              ElementsAre(NetworkAdapter{"mlx5_0", "InfiniBand", 50e9}));
  EXPECT_FALSE(has_slingshot(network_adapters(other.path())));
}
