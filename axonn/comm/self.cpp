#include "axonn/comm/self.h"

#include <cstring>

#include "axonn/comm/call.h"

namespace axonn {

namespace {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(std::string name, std::shared_ptr<AbortFlag> flag)
      : Communicator(std::move(name), 0, 1), flag_(std::move(flag)) {}

  std::unique_ptr<Communicator> split_off(int, std::string name) override {
    flag_->check();
    return make_self(std::move(name), flag_);
  }

  void abort(const std::string& reason) noexcept override { flag_->set(reason); }
  std::string end_reason() const override { return flag_->reason_if_set(); }

 protected:
  std::shared_ptr<Work::State> start(Call call) override {
    flag_->check();
    if (call.out.data != call.inp.data && call.out.count > 0)
      std::memcpy(call.out.data, call.inp.data, call.out.bytes());
    return nullptr;
  }

 private:
  std::shared_ptr<AbortFlag> flag_;
};

}  // namespace

std::unique_ptr<Communicator> make_self() {
  return make_self("self", std::make_shared<AbortFlag>());
}

std::unique_ptr<Communicator> make_self(std::string name, std::shared_ptr<AbortFlag> flag) {
  return std::make_unique<SelfCommunicator>(std::move(name), std::move(flag));
}

}  // namespace axonn
