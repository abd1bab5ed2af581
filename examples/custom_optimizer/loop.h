#pragma once

/// Trains a small GPT with Signum on one rank and on a 2x2x2 grid of ranks, and prints the losses.
/// The second run continues from the checkpoint that the first one saved halfway. Returns the exit
/// code: 0 if the losses fall and agree. register_signum() must have been called.
int run_loop();
