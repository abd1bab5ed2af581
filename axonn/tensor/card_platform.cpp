#include "axonn/tensor/card_platform.h"

#include "axonn/base/check.h"

namespace axonn {

std::string trouble_of(const CardPlatform& platform, const NoCard& answer) {
  const std::string go_on = "; take parallelism.device = \"cpu\", or start it where there is one";
  if (answer.driver.empty()) return concat("there is no ", platform.maker, " driver", go_on);
  if (answer.too_old)
    return concat("the driver runs ", platform.name, " up to ", answer.driver,
                  " and this build is of ", answer.built_with, "; build it with that ",
                  platform.name, ", or install a newer driver");
  return concat("the driver shows no card (", answer.error, "; ", platform.visible_cards,
                " may hide it)", go_on);
}

std::string trouble_of_build(const CardPlatform& wanted, const CardPlatform* built) {
  if (built && built->device == wanted.device) return {};
  const std::string other =
      built ? concat("; it computes on ", built->maker, " cards: take device = \"", built->device,
                     "\" for those, or")
            : concat(":");
  return concat("this build has no ", wanted.name, " backend", other, " configure with -D",
                wanted.option, "=ON where ", wanted.needs, " are (docs/gpus.md)");
}

}  // namespace axonn
