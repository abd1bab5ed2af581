#include "axonn/run/config/other_names.h"

namespace axonn {

namespace {

constexpr OtherNames kOtherNames[] = {
    {"gradient_accumulation_steps gradient_accumulation accumulate_grad_batches",
     "set training.global_batch to the sequences of a step on all ranks: micro_batch x "
     "accumulation steps x parallelism.z x parallelism.data"},
    {"warmup_ratio lr_warmup_fraction warmup_proportion",
     "set lr_scheduler.warmup_steps: the ratio times training.steps"},
    {"min_lr_ratio cosine_min_lr_ratio min_lr_rate min_lr_factor",
     "set lr_scheduler.min_lr, which is a rate: the ratio times optimizer.lr"},
    {"load_in_4bit load_in_8bit quantization_bit quantization_config",
     "bases are not quantized; adapters train on a base in bf16 with training.dtype = \"bf16\""},
    {"datasets dataset_name train_dataset",
     "name the files: data.jsonl for conversations and instructions, data.text for texts, "
     "data.tokens for token files"},
    {"sample_packing packing pack_sequences",
     "examples of data.jsonl are always packed; for texts set data.documents = \"packed\""},
    {"train_on_inputs train_on_prompt assistant_only_loss completion_only_loss",
     "of conversations and completions only answers are learned; to learn all, give lines with "
     "\"text\""},
    {"deepspeed zero_stage zero_optimization fsdp_config",
     "set parallelism.z: ranks among which weights, gradients and optimizer state are cut, as in "
     "ZeRO-3 and FSDP"},
    {"use_distributed_optimizer distributed_optimizer",
     "the optimizer's state is always cut over parallelism.z and parallelism.data"},
    {"sequence_parallel enable_sequence_parallel",
     "always: between the products of a layer the rows are cut over parallelism.x"},
    {"expert_tensor_parallel_size expert_tensor_parallel_degree",
     "experts are cut over parallelism.x and y as every layer is; parallelism.experts are the "
     "ranks of z among which they are divided"},
    {"pipeline_model_parallel_size pipeline_parallel_degree pp_size G_inter "
     "num_layers_per_virtual_pipeline_stage",
     "there are no pipeline stages; a model is cut over parallelism.x, y and z"},
    {"save_strategy save_every_epoch", "set checkpoint.every, in steps"},
    {"eval_strategy evaluation_strategy", "set training.eval_every, in steps"},
    {"logging_strategy", "set output.log_every, in steps"},
    {"hub_model_id push_to_hub",
     "models are not uploaded; axonn convert writes a folder that hf upload takes"}};

}  // namespace

std::span<const OtherNames> other_names() { return kOtherNames; }

}  // namespace axonn
