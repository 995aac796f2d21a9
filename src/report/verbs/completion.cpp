// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "posenc/report/verb.h"
#include "scripts.h"

namespace posenc::report {
namespace {

Verb::Run declare_completion(Words& w) {
  auto shell = std::make_shared<std::string>();
  w.text("SHELL", *shell, "", "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  return [shell](const Request&) { return Report{.text = completion_script(*shell)}; };
}

}  // namespace

const Verb completion_verb{
    "completion", "print a completion script for bash, zsh or fish", &declare_completion,
    "Example:\n  posenc completion bash > ~/.local/share/bash-completion/completions/posenc"};

}  // namespace posenc::report
