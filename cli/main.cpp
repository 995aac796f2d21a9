// SPDX-License-Identifier: Apache-2.0
// The command line. Words are parsed here and only here; verbs get plain structs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <new>
#include <system_error>

#include "completion.h"
#include "exit.h"
#include "memory.h"
#include "numbers.h"
#include "posenc/core/error.h"
#include "posenc/version.h"
#include "program.h"
#include "signals.h"
#include "streams.h"
#include "verbs.h"
#include "words.h"

namespace posenc::cli {
namespace {

constexpr const char* kModel =
    "a config.json, a directory that holds one, a .gguf file, or - for a config.json on stdin";
constexpr const char* kSubject =
    "a model's file (config.json, directory, .gguf, -) or a SCHEME such as\n"
    "\"rope head_dim=128 pairing=half_split + yarn factor=4 original_context=4096\"";

}  // namespace

void add_subject(CLI::App* verb, SubjectOptions& o, Takes takes) {
  const bool scheme = takes == Takes::model_or_scheme;
  verb->add_option(scheme ? "MODEL|SCHEME" : "MODEL", o.text, scheme ? kSubject : kModel)
      ->type_name("")
      ->required();
  verb->add_option("--context", o.context,
                   "sequence length for length rules (default: the model's own)")
      ->type_name("N")
      ->transform(whole_number(1, Index{1} << 50));
  if (takes != Takes::model)
    verb->add_option("--layer", o.layer, "one layer, counted from 0")
        ->type_name("L")
        ->transform(whole_number(0));
  verb->add_option("--assume", o.assume,
                   "decide what the file does not say, as KEY=VALUE; repeatable")
      ->type_name("K=V")
      ->allow_extra_args(false);
  verb->add_option("--reader", o.reader,
                   "whose meaning: transformers or llama_cpp (default: by the file)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"transformers", "llama_cpp"}));
  if (!scheme) return;
  verb->add_option("--tower", o.tower, "vision or audio instead of the decoder")->type_name("T");
  verb->add_option("--arrays", o.arrays,
                   ".safetensors file for @name in a SCHEME, and for what it learns")
      ->type_name("F");
  verb->add_option("--start", o.start,
                   "what a SCHEME learns at the input as it starts, before training, drawn from "
                   "SEED")
      ->type_name("SEED")
      ->transform(whole_number(0));
}

void add_json(CLI::App* verb, bool& json) {
  verb->add_flag("--json", json, "for machines, with a stable schema");
}

void add_output(CLI::App* verb, Output& o, const char* what, bool required) {
  verb->add_option("-o,--output", o.path, what)->type_name("F")->required(required);
  verb->add_option("--format", o.format, "for -o -: npy, safetensors or csv")->type_name("FORMAT");
}

namespace {

struct Verbs {
  ListOptions list;
  ExplainOptions explain, doctor;
  TableOptions table;
  ApplyOptions apply;
  AttendOptions attend;
  BiasOptions bias;
  EmitOptions emit;
  ExtendOptions extend;
  PlotOptions plot;
  SelftestOptions selftest;
  BenchOptions bench;
  char** argv = nullptr;
  std::string shell;
  std::function<int()> chosen;
};

void add_reading_verbs(CLI::App& app, Verbs& v) {
  auto* list_verb =
      app.add_subcommand("list", "schemes and scalings: fields, units, defaults, sources");
  list_verb->add_option("NAME", v.list.name, "one scheme or scaling")->type_name("");
  list_verb->add_flag("--markdown", v.list.markdown, "the table of the README");
  add_json(list_verb, v.list.json);
  list_verb->footer("Examples:\n  posenc list\n  posenc list yarn");
  list_verb->callback([&v] { v.chosen = [&v] { return list(v.list); }; });

  auto* explain_verb =
      app.add_subcommand("explain", "what positions a model uses, and where each value came from");
  add_subject(explain_verb, v.explain.subject, Takes::layer_of_model);
  add_json(explain_verb, v.explain.json);
  explain_verb->footer(
      "Examples:\n  posenc explain models/llama/config.json\n  posenc explain model.gguf --layer "
      "5\n"
      "  posenc explain models/phi --context 8192 --json\n"
      "Exit: 0, 3 when the positions cannot be determined.");
  explain_verb->callback([&v] { v.chosen = [&v] { return explain(v.explain); }; });

  auto* doctor =
      app.add_subcommand("doctor", "what is wrong, risky or ambiguous in a model's positions");
  add_subject(doctor, v.doctor.subject, Takes::model);
  doctor->add_flag("--notes", v.doctor.notes,
                   "also the notes that hold for every model of its kind (--json has them all)");
  doctor->add_flag("--strict", v.doctor.strict, "exit 1 for a warning too, not only for an error");
  add_json(doctor, v.doctor.json);
  doctor->footer(
      "Examples:\n  posenc doctor models/llama\n  posenc doctor model.gguf --context 131072 "
      "--json\n"
      "Exit: 1 when a finding is an error (--strict: or a warning), 0 otherwise; docs/doctor.md "
      "explains every code.");
  doctor->callback([&v] { v.chosen = [&v] { return doctor_verb(v.doctor); }; });
}

void add_table(CLI::App& app, Verbs& v) {
  auto* t = app.add_subcommand(
      "table", "frequencies, turns, angles, cos and sin, exact or as a program computes them");
  add_subject(t, v.table.subject, Takes::model_or_scheme);
  t->add_option("--positions", v.table.positions, "A:B[:STEP] (half-open), a list 0,1,2 or an .npy")
      ->type_name("P");
  t->add_option(
       "--what", v.table.what,
       "inv_freq, turns, angles, cos, sin or cos_sin (default); bias of what acts in the score, "
       "[heads, "
       "distances],\nwhere --positions are distances, query - key; rows (default where nothing "
       "turns):\n"
       "what acts at the input, learned rows from the *.safetensors beside the config or the .gguf")
      ->type_name("WHAT");
  t->add_option("--grid", v.table.grid,
                "positions count the cells of an image of so many rows and columns, row by row")
      ->type_name("HxW");
  t->add_option("--heads", v.table.heads, "of bias: heads of the attention")
      ->type_name("N")
      ->transform(whole_number(1, 65536));
  t->add_option("--input", v.table.subject.input,
                "which of several encodings at the input, counted from 0")
      ->type_name("K")
      ->transform(whole_number(0));
  t->add_option("--layout", v.table.layout, "half, duplicated, repeated or pairs")
      ->type_name("LAYOUT")
      ->default_str("half");
  t->add_option("--precision", v.table.precision, "exact, hf_float32, hf_bfloat16_table or ggml")
      ->type_name("P")
      ->default_str("exact");
  t->add_option("--dtype", v.table.dtype,
                "f64, f32, f16 or bf16 (default: f64 when exact, else f32)")
      ->type_name("T");
  add_output(
      t, v.table.output,
      "F.npy, F.safetensors, F.csv or - (default: printed; without --positions the frequencies)",
      false);
  add_json(t, v.table.json);
  t->footer(
      "Examples:\n  posenc table config.json\n"
      "  posenc table \"rope head_dim=8 pairing=half_split\" --positions 0:4\n"
      "  posenc table config.json --positions 0:4096 --what "
      "cos --layout duplicated -o "
      "cos.npy\n"
      "  posenc table \"rope head_dim=128 pairing=half_split\" --what inv_freq -o - --format csv\n"
      "  posenc table \"sinusoidal width=512 layout=halves\" --positions 0:512 -o pe.npy\n"
      "  posenc table models/bert --what rows --positions 0:512 -o rows.npy\n"
      "  posenc table models/detr --grid 25x34 --positions 0:850 -o rows.npy\n"
      "  posenc table model.gguf --positions=-5:5 --precision ggml -o rows.safetensors");
  t->callback([&v] { v.chosen = [&v] { return table(v.table); }; });
}

void add_apply(CLI::App& app, Verbs& v) {
  auto* a =
      app.add_subcommand("apply", "rotate queries and keys from files as the model's layer would");
  add_subject(a, v.apply.subject, Takes::model_or_scheme);
  a->add_option("--q", v.apply.q, "queries: F.npy, F.safetensors or F.safetensors:NAME")
      ->type_name("F");
  a->add_option("--k", v.apply.k, "keys, likewise")->type_name("F");
  a->add_option("--bias", v.apply.bias, "pope's bias of the keys, [heads, head_dim] of f32 or f64")
      ->type_name("F");
  a->add_option("--positions", v.apply.positions, "A:B[:STEP], a list or an .npy")
      ->type_name("P")
      ->required();
  a->add_option("--order", v.apply.order,
                "axes: thd (rank 3), bthd, bhtd or tbhd (rank 4, must be given)")
      ->type_name("ORDER");
  a->add_option("--precision", v.apply.precision, "exact, hf_float32, hf_bfloat16_table or ggml")
      ->type_name("P")
      ->capture_default_str();
  a->add_option("--sense", v.apply.sense, "forward, gradient, inverse or shift")
      ->type_name("SENSE")
      ->capture_default_str();
  a->add_flag("--temperature", v.apply.temperature,
              "multiply q by the layer's query temperature too");
  add_output(a, v.apply.output, "F.safetensors: q and k in the dtype that was read");
  add_json(a, v.apply.json);
  a->footer(
      "Examples:\n  posenc apply config.json --layer 3 --q q.npy --k k.npy --positions 0:128 -o "
      "turned.safetensors\n"
      "  posenc apply model.gguf --q x.safetensors:q --positions 7 --order bhtd --sense inverse -o "
      "out.safetensors");
  a->callback([&v] { v.chosen = [&v] { return apply_verb(v.apply); }; });
}

void add_checking_verbs(CLI::App& app, Verbs& v) {
  auto* s = app.add_subcommand("selftest", "the conformance suites, on this machine");
  s->add_option("--suite", v.selftest.suites,
                "a suite's folder; repeatable (default: those that came with posenc)")
      ->type_name("DIR");
  s->add_option("--map", v.selftest.map, "JSON file that adds the `posenc` field by case name")
      ->type_name("F");
  s->add_option("--onnx", v.selftest.onnx,
                "a folder of ONNX Attention or RotaryEmbedding node tests; repeatable")
      ->type_name("DIR");
  s->add_option("--filter", v.selftest.filter, "only cases whose name matches this expression")
      ->type_name("RE");
  add_json(s, v.selftest.json);
  s->footer(
      "Examples:\n  posenc selftest\n  posenc selftest --suite conformance/gguf --json\nExit: 1 on "
      "any failure.");
  s->callback([&v] { v.chosen = [&v] { return selftest(v.selftest, v.argv); }; });

  auto* b =
      app.add_subcommand("bench", "speed beside this machine's own limits, and the error at once");
  b->add_option("--filter", v.bench.filter, "only lines whose name matches this expression")
      ->type_name("RE");
  b->add_flag("--quick", v.bench.quick, "fewer samples: a look, not a measurement");
  add_json(b, v.bench.json);
  b->footer("Examples:\n  posenc bench\n  posenc bench --filter rotate/f32 --json");
  b->callback([&v] { v.chosen = [&v] { return bench(v.bench, v.argv); }; });

  auto* c = app.add_subcommand("completion", "a completion script for bash, zsh or fish");
  c->add_option("SHELL", v.shell, "bash, zsh or fish")
      ->type_name("WORD")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  c->footer(
      "Example:\n  posenc completion bash > ~/.local/share/bash-completion/completions/posenc");
  c->callback([&app, &v] {
    v.chosen = [&app, &v] {
      write_text("-", completion_script(app, v.shell));
      return 0;
    };
  });
  auto* m = app.add_subcommand("man", "the manual page, in roff");
  m->footer("Example:\n  posenc man | man -l -");
  m->callback([&app, &v] {
    v.chosen = [&app] {
      write_text("-", manual_page(app));
      return 0;
    };
  });
}

// An empty value is a variable that was not set, no wish for the default.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; }))
    for (CLI::Option* o : verb->get_options())
      if (o->get_items_expected_max() > 0)
        o->check([](const std::string& v) {
          return v.empty() ? std::string("must not be empty") : std::string();
        });
}

}  // namespace

int run_verb(int argc, char** argv) {
  CLI::App app("Position encodings of Transformers: read, explain, check, compute.");
  app.name("posenc");
  app.set_version_flag("--version", std::string("posenc ") + kVersion);
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.footer(
      "posenc VERB --help has options and examples. Data go to stdout, messages to stderr.\n"
      "Exit: 0 success, 1 a negative answer, 2 usage, 3 bad input, 4 resources.");
  Verbs v;
  v.argv = argv;
  add_reading_verbs(app, v);
  add_table(app, v);
  add_apply(app, v);
  add_attend_verb(app, v.attend, v.chosen);
  add_bias_verb(app, v.bias, v.chosen);
  add_emit_verb(app, v.emit, v.chosen);
  add_extend_verb(app, v.extend, v.chosen);
  add_plot(app, v.plot, v.chosen);
  add_checking_verbs(app, v);
  refuse_empty_values(app);
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
  return v.chosen();
}

int run_program(int argc, char** argv) {
  open_standard_streams();
  try {
    remove_files_on_signals();
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write, said like others
    return finished(run_verb(argc, argv));
  } catch (const UsageError& e) {
    return fail(kUsage, e.what());
  } catch (const std::bad_alloc&) {
    return fail(kResources, not_enough_memory());
  } catch (const std::system_error& e) {
    return fail(code_of(e), e.what());
  } catch (const std::exception& e) {  // FormatError, InputError, std::invalid_argument
    return fail(kBadInput, e.what());
  }
}

}  // namespace posenc::cli
