// SPDX-License-Identifier: Apache-2.0
// The words of attend and bias.
#include "numbers.h"
#include "words.h"

namespace posenc::cli {
namespace {

constexpr const char* kInput = "an array that the scheme reads of each call; repeatable";

void add_tensors(CLI::App* a, AttendOptions& o) {
  a->add_option("--q", o.q, "queries: F.npy, F.safetensors or F.safetensors:NAME")
      ->type_name("F")
      ->required();
  a->add_option("--k", o.k, "keys, likewise; as many heads as q, or fewer that divide them")
      ->type_name("F")
      ->required();
  a->add_option("--v", o.v, "values, with the heads of k")->type_name("F")->required();
  a->add_option("--order", o.order, "axes: thd (rank 3), bthd or bhtd (rank 4, must be given)")
      ->type_name("ORDER");
  add_params(a, o.params);
  a->add_option("--input", o.inputs, kInput)->type_name("NAME=F")->allow_extra_args(false);
  a->add_option("--with", o.with, "a further SCHEME that acts in the score; repeatable")
      ->type_name("SCHEME")
      ->allow_extra_args(false);
}

void add_packing(CLI::App* a, AttendOptions& o) {
  a->add_option("--cu-seqlens", o.cu_seqlens,
                "packed sequences: starts and end, [sequences + 1]; order, positions and offset "
                "count inside each")
      ->type_name("F");
  a->add_option("--key-cu-seqlens", o.key_cu_seqlens, "of the keys (default: the queries')")
      ->type_name("F");
  a->add_option("--documents", o.documents, "a number for each token; equal ones see each other")
      ->type_name("F");
  a->add_option("--query-order", o.query_order,
                "where each query stands in its sequence, [t] or [b, t]: shards, caches that evict "
                "(default: --offset)")
      ->type_name("F");
  a->add_option("--key-order", o.key_order, "of the keys; with --query-order")->type_name("F");
  a->add_option("--chunk-origin", o.chunk_origin,
                "where chunks of --mask chunk=N count from: a number, or a file [b] or [b, groups]")
      ->type_name("N|F");
  a->add_option("--block-table", o.block_table,
                "pages of each row, [rows, pages]: k and v are pages; with --key-length")
      ->type_name("F");
  a->add_option("--key-length", o.key_length, "keys of each row, [b]; those behind are padding")
      ->type_name("F");
}

}  // namespace

void add_params(CLI::App* verb, std::string& file) {
  verb->add_option("--params", file,
                   "what the schemes learn: .safetensors with arrays of their names (posenc list "
                   "NAME); default of a MODEL: its weights")
      ->type_name("F");
}

void add_token_types(CLI::App* verb, AttendOptions& o) {
  verb->add_option("--token-types", o.token_types,
                   "of a MODEL whose images or prefix see each other: the type of each key, as its "
                   "processor\nmakes them (token_type_ids): [keys] or [batch, keys]")
      ->type_name("F");
}

void add_places(CLI::App* a, AttendOptions& o, const char* positions) {
  a->add_option("--positions", o.positions, positions)->type_name("P");
  a->add_option("--key-positions", o.key_positions,
                "of the keys (default: those of the queries where they are as many, else order)")
      ->type_name("P");
  a->add_option("--mask", o.masks,
                "causal, window=L,R, prefix=N, chunk=N, sinks=N or a file: bytes (0 hides) or "
                "numbers that are added;\nrepeatable; all must agree (default: a model's layer "
                "has its own, a SCHEME none)")
      ->type_name("MASK")
      ->allow_extra_args(false);
  add_token_types(a, o);
  a->add_option(
       "--offset", o.offset,
       "the queries' place among the keys: end (default: the last ones), start or a number")
      ->type_name("N");
  a->add_option("--scale", o.scale,
                "on q.k, 0: the terms alone (default: a model's, or what the scheme asks for, else "
                "head_dim^-1/2)")
      ->type_name("S")
      ->transform(real_number());
}

void add_attend_verb(CLI::App& app, AttendOptions& o, std::function<int()>& chosen) {
  auto* a = app.add_subcommand(
      "attend", "attention of q, k and v from files with position terms, and its gradients");
  add_subject(a, o.subject, Takes::model_or_scheme);
  add_tensors(a, o);
  add_places(a, o, "of the queries: A:B[:STEP], a list or an .npy (default: their order)");
  a->add_option("--grid", o.grid,
                "the tokens are cells of such a grid, row by row, or --positions counts its cells; "
                "a model's\ntables of each axis are resized to it, as by its program (default: the "
                "scheme's own grid)")
      ->type_name("HxW");
  add_packing(a, o);
  a->add_option("--softcap", o.softcap, "q.k becomes C tanh(q.k / C); 0: none (default: a model's)")
      ->type_name("C")
      ->transform(real_number());
  a->add_option("--gradient", o.gradient,
                "the gradient of out: writes grad_q, grad_k, grad_v and grad_NAME of every "
                "parameter and input")
      ->type_name("F");
  a->add_flag("--scores", o.scores, "writes content (scaled q.k), scores and capped");
  a->add_flag("--terms", o.terms,
              "writes content_key, query_position, position_key, position_position");
  a->add_flag("--probabilities", o.probabilities, "writes probabilities");
  a->add_flag("--locality", o.locality,
              "writes locality [heads, distances]: the mass of attention by distance, query - key");
  add_output(a, o.output, "F.safetensors: out, log_sum_exp and what was asked for");
  add_json(a, o.json);
  a->footer(
      "Examples:\n  posenc attend \"t5 bidirectional=false\" --q q.npy --k k.npy --v v.npy \\\n"
      "    --params t5.safetensors --mask causal -o out.safetensors\n"
      "  posenc attend models/bloom --layer 3 --q q.npy --k k.npy --v v.npy --order bhtd --scores "
      "-o out.safetensors\n"
      "  posenc attend alibi --q x.safetensors:q --k x.safetensors:k --v x.safetensors:v --mask "
      "window=128,0 \\\n    --gradient d_out.npy -o out.safetensors");
  a->callback([&o, &chosen] { chosen = [&o] { return attend_verb(o); }; });
}

void add_bias_verb(CLI::App& app, BiasOptions& o, std::function<int()>& chosen) {
  auto* b = app.add_subcommand(
      "bias", "what a scheme adds to the score of every query and key, whatever they hold");
  add_subject(b, o.subject, Takes::model_or_scheme);
  b->add_option("--heads", o.heads, "heads of the attention")
      ->type_name("N")
      ->required()
      ->transform(whole_number(1, 65536));
  b->add_option("--head-dim", o.head_dim, "channels of a head, where a scheme asks for them")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 65536));
  b->add_option("--positions", o.positions,
                "of the queries: A:B[:STEP], a list or an .npy; with --by-distance distances")
      ->type_name("P")
      ->required();
  b->add_option("--key-positions", o.key_positions, "of the keys (default: the queries')")
      ->type_name("P");
  add_params(b, o.params);
  b->add_option("--input", o.inputs, kInput)->type_name("NAME=F")->allow_extra_args(false);
  b->add_flag("--by-distance", o.by_distance,
              "a line for each distance query - key in --positions: [heads, distances]");
  add_output(b, o.output, "F.npy, F.safetensors or F.csv: [heads, queries, keys]");
  add_json(b, o.json);
  b->footer(
      "Examples:\n  posenc bias alibi --heads 8 --positions 0:128 -o bias.npy\n"
      "  posenc bias \"t5 bidirectional=true\" --heads 4 --start 1 --positions=-128:129 "
      "--by-distance -o bias.csv\n"
      "  posenc bias \"kerple kernel=log\" --heads 8 --start 1 --positions 7 --key-positions 0:8 "
      "-o "
      "row.npy");
  b->callback([&o, &chosen] { chosen = [&o] { return bias_verb(o); }; });
}

}  // namespace posenc::cli
