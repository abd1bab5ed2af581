#pragma once

#include "axonn/network/model/families/family.h"

namespace axonn {

/// OPT: the block of GPT-2 with ReLU and with queries, keys and values as parameters of their own;
/// norms have biases even if products have none.
///
/// Source: Zhang et al., "OPT: Open pre-trained transformer language models", 2022.
extern const Family kOptFamily;

}  // namespace axonn
