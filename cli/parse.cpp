// SPDX-License-Identifier: Apache-2.0
// The command line: its words to a verb, and what the verb answers to files and streams.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "exit.h"
#include "posenc/version.h"
#include "program.h"
#include "scripts.h"
#include "streams.h"
#include "verb.h"
#include "wrong_words.h"

namespace posenc::cli {
namespace {

struct Declared {
  const Verb* verb = nullptr;
  Words words{};
  Verb::Run run{};
};

void add(CLI::App& verb, Word& word) {
  if (word.is_flag()) {
    verb.add_flag_callback(
        word.names, [&word] { (void)word.set(""); }, word.help);
    return;
  }
  const std::string name = word.is_positional() ? word.names : "--" + word.name();
  CLI::Option* option = verb.add_option(
      word.names,
      [&word, name](const CLI::results_t& values) {
        for (const std::string& value : values)
          if (const std::string wrong = word.set(value); !wrong.empty())
            throw CLI::ValidationError(name, wrong);
        return true;
      },
      word.help);
  option->type_name(word.type)->required(word.is_required)->default_str(word.fallback);
  if (word.is_repeatable)
    option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
}

// Refuses, before anything is read, an output that cannot be written as asked.
void check_output(Declared& d) {
  Words::Output& out = d.words.out;
  const Holds holds = d.words.holds();
  if (holds == Holds::picture && out.path.empty())
    out.path = "plot." + (out.format.empty() ? "svg" : out.format);
  if (out.path.empty()) {
    if (!out.format.empty()) throw UsageError("--format goes with -o -");
    return;
  }
  if (holds == Holds::one_array || holds == Holds::arrays) {
    const std::string format = array_format({out.path, out.format});
    if (holds == Holds::arrays && format != "safetensors")
      throw UsageError(fmt::format("{} writes several arrays: -o F.safetensors", d.verb->name));
  } else if (holds == Holds::picture) {
    out.format = picture_format({out.path, out.format});
  }
  if (out.json && is_stdout(out.path))
    throw UsageError(fmt::format("--json and the {} cannot both go to stdout",
                                 holds == Holds::picture ? "picture" : "data"));
  std::vector<std::string> files;
  std::string model;
  for (const Word& word : d.words.all())
    for (const std::string& value : word.given) {
      if (word.is_file) files.push_back(value.substr(word.is_repeatable ? value.find('=') + 1 : 0));
      if (word.is_model) files.push_back(model = value);
    }
  refuse_overwriting(out.path, files, model);
}

void deliver(const Report& report, const Words::Output& out) {
  if (!report.schema.empty()) {
    write_arrays({out.path, out.format}, report.arrays);
    report_written(report.schema.c_str(), out.path, report.arrays, out.json);
    return;
  }
  if (report.bytes) {
    write_text(out.path, *report.bytes);
    if (is_stdout(out.path)) return;
    if (!out.json) say(report.written);
  }
  if (!report.text.empty()) write_stdout(report.text);
}

int perform(Declared& d, char** argv) {
  check_output(d);
  const Words::Output& out = d.words.out;
  Request request{.path = out.path, .format = out.format, .json = out.json};
  request.color = style_for_stdout().color;
  request.argv = argv;
  std::unique_ptr<Progress> shown;
  request.progress = [&shown](const char* what, Index done, Index total) {
    if (!shown) shown = std::make_unique<Progress>(what);
    shown->step(done, total);
  };
  const Report report = d.run(request);
  shown.reset();
  deliver(report, out);
  return report.code;
}

}  // namespace

int run_verb(int argc, char** argv) {
  CLI::App app(kProgramSummary);
  app.name("posenc");
  app.set_version_flag("--version", std::string("posenc ") + kVersion);
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.footer(
      "posenc VERB --help shows options and examples. Data go to stdout, messages to stderr.\n"
      "Exit codes: 0 success, 1 a negative answer, 2 usage, 3 bad input, 4 resources.");
  std::deque<Declared> all;
  Declared* chosen = nullptr;
  for (const Verb* verb : verbs()) {
    Declared& d = all.emplace_back(Declared{verb});
    d.run = verb->declare(d.words);
    CLI::App* app_verb = app.add_subcommand(verb->name, verb->summary);
    for (Word& word : d.words.all()) add(*app_verb, word);
    app_verb->footer(verb->examples);
    app_verb->callback([&d, &chosen] { chosen = &d; });
  }
  if (argc > 1 && argv[1][0] != '-') refuse_unknown_verb(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    app.exit(e);
    std::cout.flush();
    return kSuccess;
  } catch (const CLI::ParseError& e) {
    const std::string verb = argc > 1 && argv[1][0] != '-' ? std::string(argv[1]) + " " : "";
    return fail(kUsage,
                fmt::format("{} (posenc {}--help shows how)", said(app, e, argc, argv), verb));
  }
  return perform(*chosen, argv);
}

}  // namespace posenc::cli
