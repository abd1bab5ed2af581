#pragma once

/// The library for programs of your own: models, optimizers and training loops that run on any grid
/// of ranks. docs/library.md introduces it. Only the headers that this one includes, directly or
/// not, are installed.

#include "axonn/base/check.h"
#include "axonn/cli/program.h"
#include "axonn/model/model.h"
#include "axonn/nn/adapter.h"
#include "axonn/nn/attention.h"
#include "axonn/nn/embedding.h"
#include "axonn/nn/linear.h"
#include "axonn/nn/loss.h"
#include "axonn/nn/norm.h"
#include "axonn/nn/pointwise.h"
#include "axonn/nn/rope.h"
#include "axonn/train/launch.h"
#include "axonn/train/training.h"
