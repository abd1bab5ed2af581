#include "axonn/ranks/comm/self.h"

#include "axonn/ranks/comm/call.h"

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
  std::string end_reason() const override { return flag_->reason(); }

 protected:
  std::shared_ptr<Work::State> start(Call call) override {
    flag_->check();
    copy(call.out, call.inp);
    return nullptr;
  }

 private:
  std::shared_ptr<AbortFlag> flag_;
};

}  // namespace

std::unique_ptr<Communicator> make_self(std::string name, std::shared_ptr<AbortFlag> flag) {
  return std::make_unique<SelfCommunicator>(std::move(name), std::move(flag));
}

}  // namespace axonn
