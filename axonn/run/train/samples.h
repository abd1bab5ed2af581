#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace axonn {

class LoadedModel;
class Tokenizer;
struct TextSample;

/// Lets the model write a text after each of the config's samples.prompts. Collective; the same on
/// every rank. Sets neither step nor time.
using TextSampler = std::function<std::vector<TextSample>()>;
/// Makes the TextSampler of a model, which must outlive it. Throws UsageError that names the key if
/// the prompts or the model do not fit.
using TextSamplerMaker =
    std::function<TextSampler(LoadedModel& model, std::shared_ptr<const Tokenizer>)>;

/// The TextSampler that config asks for; empty if it asks for none. Throws UsageError, naming
/// samples.prompts, if there is no tokenizer (null) or no maker, and as the maker.
TextSampler text_sampler_of(LoadedModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                            const TextSamplerMaker& maker);

}  // namespace axonn
