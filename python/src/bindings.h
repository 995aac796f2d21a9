// SPDX-License-Identifier: Apache-2.0
// What each file of the module adds to it, and what they share.
#pragma once
#include <nanobind/nanobind.h>
// Every file sees the same casters.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "posenc/io/json.h"
#include "posenc/positions.h"
#include "posenc/registry.h"

namespace posenc::python {

namespace nb = nanobind;

void add_errors(nb::module_&);
void add_encodings(nb::module_&);
void add_rotation(nb::module_&);
void add_input(nb::module_&);
void add_input_lookup(nb::module_&);
void add_polar(nb::module_&);
void add_attention(nb::module_&);
void add_more_attention(nb::module_&);
void add_score_bias(nb::module_&);
void add_positions(nb::module_&);
void add_position_maps(nb::module_&);
void add_drawn_positions(nb::module_&);
void add_modal_positions(nb::module_&);
void add_models(nb::module_&);
// Words of a command line, as the system has them.
std::vector<std::string> system_words(const nb::list&);
void add_reports(nb::module_&);
void add_program(nb::module_&);
void add_torch(nb::module_&);
void add_torch_rotation(nb::module_&);
void add_ring(nb::module_&);
void add_jax(nb::module_&);

// The SCHEME text of an argument that takes an encoding: a text, or an object of the package.
std::string scheme_text(nb::handle, const char* who);
// None, one of them, or several.
std::vector<std::string> scheme_texts(nb::handle, const char* who);
Encoding encoding_of(nb::handle, const char* who);
// os.fspath, so that pathlib's paths and texts are taken.
std::string path_of(nb::handle, const char* who);
// None: 0, no length.
Context context_of(nb::handle, const char* who);

nb::object to_python(const Json&);
nb::object to_python(const OwnedPositions&);  // [t], [b, t] or [axes, b, t]
nb::object to_python(const Parameter&);

}  // namespace posenc::python
