// The number by which scale.cu multiplies.
#pragma once

namespace companion_test {
constexpr float factor = 3.0f;
}
