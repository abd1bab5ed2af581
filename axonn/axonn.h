#pragma once

/// The library for programs of your own: models, layers, optimizers and training loops that run on
/// any grid of ranks. docs/library.md introduces it, and lists the headers for generation,
/// evaluation and data. These and what they include are installed; all others are internal.

#include "axonn/app/cli/program.h"
#include "axonn/app/start/start_run.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/model.h"
#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/attention/rope.h"
#include "axonn/network/nn/embedding.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/loss.h"
#include "axonn/network/nn/norm.h"
#include "axonn/network/nn/pointwise.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/train/training.h"
