// SPDX-License-Identifier: Apache-2.0
#include "notes.h"

#include <utility>

namespace posenc::report {
namespace {

thread_local const std::function<void(std::string_view)>* receiver = nullptr;

}  // namespace

void note(std::string_view text) {
  if (receiver != nullptr && *receiver) (*receiver)(text);
}

NoteScope::NoteScope(std::function<void(std::string_view)> to)
    : to_(std::move(to)), before_(std::exchange(receiver, &to_)) {}
NoteScope::~NoteScope() {
  receiver = before_;
}

}  // namespace posenc::report
