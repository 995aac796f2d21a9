// SPDX-License-Identifier: Apache-2.0
// Remarks beside a report: which layer was chosen, what a layer does besides.
#pragma once
#include <functional>
#include <string_view>

namespace posenc::report {

// To whoever asked for the report that this thread makes; nobody: it is lost.
void note(std::string_view text);

// While it lives, remarks of this thread go to the function.
class NoteScope {
 public:
  explicit NoteScope(std::function<void(std::string_view)> to);
  ~NoteScope();
  NoteScope(const NoteScope&) = delete;
  NoteScope& operator=(const NoteScope&) = delete;

 private:
  std::function<void(std::string_view)> to_;
  const std::function<void(std::string_view)>* before_;
};

}  // namespace posenc::report
