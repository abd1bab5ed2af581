#include "axonn/data/text/chat/named_templates.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// A macro of all named templates: words(message) writes a message's text, of one or several parts.
constexpr std::string_view kWords = R"({%- macro words(message) -%}
  {%- if message.content is string -%}
    {{- message.content -}}
  {%- else -%}
    {%- for part in message.content or [] -%}
      {%- if part.type != 'text' -%}
        {{- raise_exception('this template writes only text, no parts of type ' ~ part.type) -}}
      {%- endif -%}
      {{- part.text -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {%- if message.role == 'system' and not loop.first -%}
    {{- raise_exception('message ' ~ loop.index ~ ': a system message must be the first') -}}
  {%- elif message.role not in ['system', 'user', 'assistant'] -%}
    {{- raise_exception('message ' ~ loop.index ~ " has the role '" ~ message.role
                        ~ "'; roles are system, user and assistant") -}}
  {%- elif message.tool_calls -%}
    {{- raise_exception('message ' ~ loop.index ~ ': this template writes no calls of tools') -}}
  {%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kChatml = R"({%- for message in messages -%}
  {{- '<|im_start|>' ~ message.role ~ '\n' ~ words(message) ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

constexpr std::string_view kNoDates = "{%- set dates = '' -%}";
// The default dates of the published templates of Llama 3.1 and 3.2.
constexpr std::string_view kDates =
    R"({%- set dates = 'Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n' -%})";
constexpr std::string_view kLlama3 = R"({%- macro header(role) -%}
  {{- '<|start_header_id|>' ~ role ~ '<|end_header_id|>\n\n' -}}
{%- endmacro -%}
{{- '<|begin_of_text|>' -}}
{%- if dates and messages[0].role != 'system' -%}
  {{- header('system') ~ dates ~ '<|eot_id|>' -}}
{%- endif -%}
{%- for message in messages -%}
  {{- header(message.role) ~ (dates if message.role == 'system') ~ words(message) | trim
      ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- header('assistant') -}}
{%- endif -%}
)";

constexpr std::string_view kLlama2 = R"({%- set system = namespace(words='') -%}
{%- set turn = namespace(of='assistant') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set system.words = '<<SYS>>\n' ~ words(message) ~ '\n<</SYS>>\n\n' -%}
  {%- else -%}
    {%- if message.role == turn.of -%}
      {{- raise_exception('message ' ~ loop.index ~ " has the role '" ~ message.role ~ "'; in this "
                          ~ 'template user and assistant alternate, and the user begins') -}}
    {%- endif -%}
    {%- set turn.of = message.role -%}
    {%- if message.role == 'user' -%}
      {{- '<s>[INST] ' ~ (system.words ~ words(message)) | trim ~ ' [/INST]' -}}
      {%- set system.words = '' -%}
    {%- else -%}
      {{- ' ' ~ words(message) | trim ~ ' </s>' -}}
    {%- endif -%}
  {%- endif -%}
{%- endfor -%}
)";

}  // namespace

const NamedTemplate* find_named_template(std::string_view name) {
  static const std::string chatml = concat(kWords, kChatml),
                           llama3 = concat(kWords, kNoDates, kLlama3),
                           llama3_1 = concat(kWords, kDates, kLlama3),
                           llama2 = concat(kWords, kLlama2);
  static const std::vector<std::string> of_llama3{"<|begin_of_text|>", "<|start_header_id|>",
                                                  "<|end_header_id|>", "<|eot_id|>"};
  static const std::vector<NamedTemplate> all{{"chatml", chatml, {}},
                                              {"llama3", llama3, of_llama3},
                                              {"llama3.1", llama3_1, of_llama3},
                                              {"llama2", llama2, {"<s>", "</s>"}}};
  const auto found = std::ranges::find(all, name, &NamedTemplate::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace axonn
