#pragma once

#include <string>

#include "axonn/app/serve/answer_parts.h"
#include "axonn/app/serve/request_body.h"

namespace axonn {

/// What a request says its text must be.
struct RequestedForm {
  std::string key;   ///< that says so; "": none does
  std::string form;  ///< compile_form()
};

/// Reads response_format, guided_json, guided_choice, guided_regex, guided_grammar, grammar, ebnf,
/// structured_outputs and json_schema, of which a request may have one. `text`: of the body, which
/// has the order of members. Throws RequestError.
RequestedForm requested_form(const RequestBody& body, const std::string& text);

/// The form of calls of tools that tool_choice wants; none if it wants no call. `arguments_marker`:
/// which of Mistral's two ways to write calls the model knows.
RequestedForm wanted_calls(const RequestBody& body, const std::string& text,
                           AnswerForm::Calls calls, bool arguments_marker);

/// The form, with the rest of a thought before it if the prompt began one. Throws RequestError with
/// the key if the form cannot be compiled.
std::string checked_form(const RequestedForm& requested, bool in_thought);

}  // namespace axonn
