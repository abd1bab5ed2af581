#pragma once

#include <span>

#include "axonn/foundation/options/options.h"

namespace axonn {

/// Keys of Hugging Face's Trainer, TRL, axolotl, LLaMA-Factory, DeepSpeed and Megatron-LM whose
/// values mean something else here. Names with the same meaning are in each key's OptionInfo::also.
std::span<const OtherNames> other_names();

}  // namespace axonn
