// The keys of [data].
#include "axonn/run/config/config_options.h"

namespace axonn {

namespace {

void list_examples(DataConfig& data, OptionList& list) {
  list.add("jsonl", &data.jsonl,
           {.help = "files of JSON lines, Parquet or CSV for fine-tuning; a line has messages, "
                    "ShareGPT's conversations, alpaca's instruction and output, prompt and "
                    "completion, or text; several share a sequence; of conversations and "
                    "completions only the answers are learned",
            .also = "conversations sft_file chat_data train_jsonl",
            .reads = Reads::files});
  list.add("excess_length_strategy", data.excess_length, kExcessLengths,
           {.help = "what happens to lines of data.jsonl that are longer than training.seq_len; "
                    "split: the rest becomes an example of its own, which begins in the middle; "
                    "drop: they are left out; truncate: their ends are cut off",
            .also = "truncation_mode truncation overlong"});
  list.add("mask_history", &data.mask_history,
           {.help = "whether of a conversation only the assistant's last turn is learned; false: "
                    "all of its turns",
            .also = "train_on_last_turn last_turn_only"});
  list.add("train_on_prompt", &data.train_on_prompt,
           {.help = "whether all tokens of conversations and of prompts are learned; false: only "
                    "the answers",
            .also = "train_on_input train_on_inputs assistant_only_loss completion_only_loss"});
  list.add(
      "chat_template", &data.chat_template,
      {.help =
           "template that turns messages into text: chatml, llama3, llama3.1, llama2, or a "
           ".jinja file; auto: the template that the run of the model at model.path learned, else "
           "the one in the tokenizer's folder, or chatml if tokenizer is \"bytes\"",
       .also = "template",
       .reads = Reads::files});
  list.add("chat_template_args", &data.chat_template_args,
           {.help = "variables of the chat template, as JSON: '{\"enable_thinking\": false}'; "
                    "strftime_now: the date that it writes as today's, \"2024-07-26\"",
            .also = "chat_template_kwargs template_kwargs"});
}

void list_documents(DataConfig& data, OptionList& list) {
  list.add("documents", data.documents, kDocumentModes,
           {.help = "what the documents that share a sequence of data.text or data.tokens are to "
                    "each other; joined: one text; separate: attention does not cross their ends, "
                    "positions count from each one's first token, which has no loss; packed: "
                    "separate, and only documents longer than a sequence are cut; apertus: joined, "
                    "but without a loss on that token",
            .also = "reset_attention_mask reset_position_ids eod_mask_loss intra_doc_masking"});
  list.add(
      "eod", &data.eod,
      {.help = "token that ends a document; -1: the tokenizer's end-of-text token; documents "
               "also end where text files, lines and the index of Megatron's files say; of [rl], "
               "it also ends an answer",
       .min = -1,
       .also = "eod_id eod_token_id"});
}

}  // namespace

void list_data(DataConfig& data, OptionList& list) {
  list.section(
      "data", "The source of tokens; exactly one of text, tokens, jsonl and synthetic must be set");
  list.add(
      "text", &data.text,
      {.help = "text to train on: files, folders (every .txt, .jsonl, .parquet and .csv file below "
               "them) or patterns such as *.txt; a file of text is a document, and so is each "
               "line of a .jsonl, .ndjson or .json file, and each row of a .parquet, .csv or "
               ".tsv file; all but Parquet may be compressed with gzip, Zstandard, bzip2 or xz",
       .also = "dataset data_path input train_file",
       .reads = Reads::texts});
  list.add("text_field", &data.text_field,
           {.help = "key of a line of JSON, or column, in data.text whose value is the document",
            .also = "json_keys json_key text_column dataset_text_field"});
  list.add(
      "tokens", &data.tokens,
      {.help = "tokenised text to train on: llm.c's .bin files, Megatron's path prefixes, .npy "
               "files or, with data.token_type, tokens without a header; or a weighted blend "
               "of them, \"w1 path1 w2 path2\"",
       .also = "token_file train_bin",
       .reads = Reads::files});
  list.add("token_type", data.token_type, kRawTokens,
           {.help = "how files of data.tokens without a header store each token: u16 is what "
                    "nanoGPT, litgpt and OLMo write for vocabularies of up to 65,536, u32 beyond "
                    "that; auto: every file must have a header",
            .also = "token_dtype dtype uint16 uint32 memmap_dtype"});
  list_examples(data, list);
  list.add("forget", &data.forget,
           {.help = "documents that training leaves out: files as for data.text, or as for "
                    "data.jsonl beside that; wherever the data have exactly the tokens of one, "
                    "these are blanked: they are not learned, and nothing is predicted from them, "
                    "while all other text stays in its place; each must be there at least once",
            .also = "unlearn exclude_documents",
            .reads = Reads::texts});
  list.add("synthetic", &data.synthetic,
           {.help = "amount of text to generate and train on; it states made-up facts; 0: none",
            .unit = "bytes",
            .min = 0,
            .also = "mock_data"});
  list.add(
      "tokenizer", &data.tokenizer,
      {.help = "\"bytes\" (each byte is a token), or a tokenizer: a folder with tokenizer.json, "
               "with vocab.json and merges.txt, or with tokenizer.model, or one of these files; "
               "\"bytes\" gives way to the tokenizer of the model at model.path, and where that is "
               "not known, must be set",
       .also = "tokenizer_path tokenizer_type",
       .reads = Reads::files});
  list_documents(data, list);
  list.add("validation", &data.validation,
           {.help = "validation data: a fraction of the training data, held out from the end of "
                    "each source, or a file; 0 or empty: none, all data are trained on",
            .or_number = true,
            .also = "val_file split validation_file val_set_size val_size eval_dataset",
            .reads = Reads::texts});
  list.add("shuffle", &data.shuffle,
           {.help = "whether sequences come in a new random order each epoch; false: in the order "
                    "of the files"});
}

void list_stage(StageConfig& stage, OptionList& list) {
  list.section("stage", "The training data from a step on");
  list.add("name", &stage.name,
           {.help = "its name in checkpoints and metrics; a resumed run goes on with the sequences "
                    "of the stage of the same name",
            .required = true});
  list.add("from_step", &stage.from_step,
           {.help = "its first step, counted from 1", .min = 1, .also = "start_training_step"});
  list.add("text", &stage.text, {.help = "as data.text", .reads = Reads::texts});
  list.add("tokens", &stage.tokens, {.help = "as data.tokens", .reads = Reads::files});
  list.add("synthetic", &stage.synthetic, {.help = "as data.synthetic", .unit = "bytes", .min = 0});
  list.add("seq_len", &stage.seq_len,
           {.help = "inputs of a sequence; divides training.seq_len, and so many more sequences "
                    "are in a batch that a step has the same tokens; 0: training.seq_len",
            .unit = "tokens",
            .min = 0,
            .also = "sequence_length"});
}

}  // namespace axonn
