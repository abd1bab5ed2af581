#pragma once

#include <initializer_list>
#include <string>

#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/request_body.h"

namespace axonn {

/// How a request of another route becomes the same request to /v1/chat/completions.
struct ChatTranslation {
  RequestKind kind;
  nlohmann::ordered_json (*chat)(nlohmann::ordered_json request);
  std::string (*key_here)(const std::string& of_chats);  ///< the name of a key there, for errors
  std::string (*repeated)(const nlohmann::ordered_json& request);  ///< CompletionRequest::repeated
};

/// Parses the body of such a request. Throws as parse_chat_completion(), with the names of keys of
/// the request's own route.
CompletionRequest parse_translated(const std::string& body, const ServedModel& model,
                                   const ChatTranslation& translation);

/// The text that is a member of a part of a key's value. `part`: what that is called, "an item".
std::string text_member(const char* key, const char* part, const nlohmann::ordered_json& of,
                        const char* name);

/// A content as chats have it, a text or parts of type text, from one with parts of these types.
/// `supported`: what an error says of them.
nlohmann::ordered_json text_parts(const char* key, const char* part,
                                  const nlohmann::ordered_json& content,
                                  std::initializer_list<const char*> types, const char* supported);

}  // namespace axonn
