#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/rollouts/rollout_sequences.h"
#include "axonn/run/config/config.h"
#include "axonn/run/train/training.h"

namespace axonn {

/// The data of each stage of a run; of [data] alone if it has no stages. Throws as open_corpus().
std::vector<std::shared_ptr<const Corpus>> open_stages(const Config& config,
                                                       const CorpusOptions& options);

/// How the answers of [rl] become steps, recorded ones or those to the prompts of the corpus.
GenerationSteps generation_steps(const Config& config, const Corpus& corpus);

/// The training sequences of each stage, whose data `stages` are. The order of a stage is a
/// function of training.seed and its name. make_sequences empty: training_sequences(), or the
/// answers of [rl], where prompts have an answer of one token.
std::vector<BatchSource> stage_sources(const Config& config,
                                       const std::vector<std::shared_ptr<const Corpus>>& stages,
                                       const SequencesMaker& make_sequences = {});

/// A line for each stage of a run: its name, steps and sequences, and its epochs until the last
/// step. Empty if the config has no stages.
std::vector<std::string> describe_stages(const Config& config, const Batches& batches);
/// How often the run has read the data of stage s, or of [data], before step n.
double epochs_before(const Batches& batches, std::size_t s, std::int64_t n);
/// Epochs of stage s before the end of the run.
double epochs_of(const Config& config, const Batches& batches, std::size_t s);

/// The fewest steps of a run without stages, those of an earlier part included, in which it reads
/// its data training.epochs times. Throws UsageError if they are too many to count.
std::int64_t steps_of_epochs(const Config& config, const Batches& batches);

/// The position of a run in its data before the first sample. `fingerprints`: of the data of each
/// stage, or "" if not known.
DataPosition data_begin(const Config& config,
                        const std::vector<std::shared_ptr<const Corpus>>& stages,
                        const std::vector<BatchSource>& sources,
                        std::vector<std::string> fingerprints);

/// The first step, counted from 0, that reads a token of a document that its stage leaves out; none
/// before step `steps`.
std::optional<std::int64_t> first_forgetting_step(const Batches& batches, std::int64_t steps);

/// The stages with only those documents left out that the run which was at `saved` did not leave
/// out; empty if there are none.
std::vector<std::shared_ptr<const Corpus>> with_further_blanks(
    const Config& config, const std::vector<std::shared_ptr<const Corpus>>& stages,
    const DataPosition& saved);

/// How a run goes on with its data where another one was.
struct ContinuedData {
  std::vector<std::int64_t> done;  ///< samples of each source before the next step
  std::string difference;          ///< what keeps it from those not yet seen, and the remedy; or ""
};
/// Of a run whose data begin at `here`, after n steps of one that was at `saved`.
ContinuedData continued_data(std::int64_t n, const DataPosition& saved, const DataPosition& here,
                             const std::vector<BatchSource>& sources);
/// Throws UsageError if there is a difference and checkpoint.changed_data is refuse. `checkpoint`:
/// for the message.
void refuse_changed_data(const Config& config, const std::string& checkpoint,
                         const ContinuedData& continued);
/// Throws UsageError if a run that was at `saved`, at the checkpoint of this name, has read
/// documents that `config` leaves out and the run did not, or may have, since its data differ: its
/// weights would keep what they learned of them.
void refuse_late_forgetting(const Config& config,
                            const std::vector<std::shared_ptr<const Corpus>>& stages,
                            const DataPosition& saved, const ContinuedData& continued,
                            const std::string& checkpoint);

}  // namespace axonn
