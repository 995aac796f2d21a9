// SPDX-License-Identifier: Apache-2.0
// The words of verbs that have many: what main.cpp gathers.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

#include "verbs.h"

namespace posenc::cli {

enum class Takes { model, layer_of_model, model_or_scheme };
void add_subject(CLI::App* verb, SubjectOptions&, Takes);
void add_json(CLI::App* verb, bool& json);

// `chosen` becomes the verb when it is called.
void add_extend_verb(CLI::App&, ExtendOptions&, std::function<int()>& chosen);
void add_plot(CLI::App&, PlotOptions&, std::function<int()>& chosen);

}  // namespace posenc::cli
