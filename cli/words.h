// SPDX-License-Identifier: Apache-2.0
// The words of verbs that have many: what main.cpp gathers.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "verbs.h"

namespace posenc::cli {

enum class Takes { model, layer_of_model, model_or_scheme };
void add_subject(CLI::App* verb, SubjectOptions&, Takes);
void add_json(CLI::App* verb, bool& json);

// `chosen` becomes the verb when it is called.
void add_extend_verb(CLI::App&, ExtendOptions&, std::function<int()>& chosen);
void add_attend_verb(CLI::App&, AttendOptions&, std::function<int()>& chosen);
void add_bias_verb(CLI::App&, BiasOptions&, std::function<int()>& chosen);
void add_emit_verb(CLI::App&, EmitOptions&, std::function<int()>& chosen);
// Words that attend and emit share: learned arrays; positions, mask, offset and scale of a call.
void add_params(CLI::App* verb, std::string& file);
void add_places(CLI::App* verb, AttendOptions&, const char* positions);
void add_token_types(CLI::App* verb, AttendOptions&);
void add_output(CLI::App* verb, Output&, const char* what, bool required = true);
void add_plot(CLI::App&, PlotOptions&, std::function<int()>& chosen);

// Throws UsageError with the verb that was meant.
void refuse_unknown_verb(const CLI::App&, const std::string& word);
// What CLI11 found wrong, in our words.
std::string said(const CLI::App&, const CLI::ParseError&, int argc, char** argv);

}  // namespace posenc::cli
