#pragma once

/// The library for programs of your own: models, layers, optimizers and training loops that run on
/// any grid of ranks. docs/library.md introduces it, and lists the headers for generation,
/// evaluation and data. These and what they include are installed; all others are internal.

#include "axonn/base/check.h"
#include "axonn/cli/program.h"
#include "axonn/config/prepared_run.h"
#include "axonn/config/stored_config.h"
#include "axonn/load/launch.h"
#include "axonn/model/model.h"
#include "axonn/nn/adapter.h"
#include "axonn/nn/attention.h"
#include "axonn/nn/embedding.h"
#include "axonn/nn/linear.h"
#include "axonn/nn/loss.h"
#include "axonn/nn/norm.h"
#include "axonn/nn/pointwise.h"
#include "axonn/nn/rope.h"
#include "axonn/train/training.h"
