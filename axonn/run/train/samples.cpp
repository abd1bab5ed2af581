#include "axonn/run/train/samples.h"

#include <utility>

#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/records/sample_file.h"

namespace axonn {

TextSampler text_sampler_of(LoadedModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                            const TextSamplerMaker& maker) {
  if (model.config().samples.prompts.empty()) return {};
  if (!maker)
    refuse("[samples] prompts: this command or program writes no samples; leave the key out, or ",
           "pass TrainOptions::make_text_sampler");
  if (!tokenizer)
    refuse("[samples] prompts need the tokenizer that made the tokens of data.tokens; set ",
           "data.tokenizer to it, or leave prompts out");
  return maker(model, std::move(tokenizer));
}

}  // namespace axonn
