"""`violations` finds broken trees, and finds none in what readers return."""

from __future__ import annotations

from typing import Any

from kernelkeep.language.guarantees import violations
from kernelkeep.language.tree import (
    Binary,
    Block,
    Declare,
    Evaluate,
    Function,
    If,
    Literal,
    Module,
    Place,
    Return,
    Statement,
    Variable,
)
from kernelkeep.language.types import ANY_FLOAT, BOOL, F4, I4, VOID

AT = Place(1, 1)


def module_of(*statements: Statement) -> Module:
    return Module(Function("k", (), VOID, Block(AT, statements)))


def test_broken_trees_are_found() -> None:
    one, half = Literal(AT, I4, 1), Literal(AT, F4, 0.5)
    i = Variable("i", I4, "local")
    for broken, message in (
        (Evaluate(AT, Binary(AT, F4, "+", one, half)), "int + float"),
        (Evaluate(AT, Binary(AT, I4, "<", one, one)), "int < int gives int"),
        (Evaluate(AT, Literal(AT, ANY_FLOAT, 1.0)), "has the type float"),
        (If(AT, one, Block(AT, ())), "its condition is int"),
        (Declare(AT, i, half), "int is set to float"),
        (Return(AT, one), "the result must be void"),
        (
            Block(AT, (Declare(AT, i), Block(AT, (Declare(AT, Variable("i", F4, "local")),)))),
            "i in line 1 hides another",
        ),
    ):
        (found,) = violations(module_of(broken))
        assert message in found
    assert violations(module_of(If(AT, Literal(AT, BOOL, True), Block(AT, (Declare(AT, i, one),))))) == []


def test_a_body_with_everything_in_it_keeps_all_promises(read: Any) -> None:
    body = """struct pair { float2 at; int kind[3]; };
typedef unsigned char byte;
const float TABLE[2][2] = {{1, 0.5}, {2}};
const int COUNT = 3;
float sum(const float from[], int count, struct pair p) {
    float total = 0, i = 5;
    for (int i = 0; i < count; i++) { float i_2 = p.at.x; { int i = 1; total += from[i] * i_2; } }
    do { total -= 0.5; if (total < -1e30) break; } while (total > count);
    return total + i;
}
void put(float to[], byte i) { to[i] = TABLE[i & 1][0]; i++; }
bool odd(int v) { switch (v & 1) { case 0: return false; default: return true; } }

kk_shared(float, tile, COUNT * 2, 4);
kk_shared(float, row, 64);
struct pair p = {{1, 2}}, q[2] = {{{1}}};
float4 v = (float4)(1, 2.5, n, p.at.y);
int sum_2 = 1, TABLE = 2, pair = 3;
byte small = 250;
small += 10; small <<= 1; small = small * 2 + 'a';
q[1] = p; p.kind[n % 3] ^= n;
v.xyz = v.zyx * 2 - 1; v[n & 3] /= 3;
y[0] = sum(x, n, p) + sum(row, 3, q[0]) + dot(v, v) + v.w;
put(y, 300); put(row, n);
z[0] = odd(n) ? odd(3) + 1 : (n++, u--, (int)d[0]);
z[1] = (n && !a) || odd(z[2] = 5);
odd(1) ? put(y, 1) : put(y, 2);
kk_atomic_min(y[0], 1.5); kk_atomic_cas(z[0], u, 0.0f > a);
kk_store4(row, 4 * n, kk_load4(y, 0) * a); tile[0][n] = clamp(a, 0, 1);
if (isnan(a) == odd(n)) z[2] = max(min(n, 3), -(1 << 3)); else ;
while (n --> 0) { if (n == 3) continue; u ^= n >> 1; }
kk_print("n", n, v, 1.0 / n);
kk_barrier();
d[0] = sqrt(2.0) / n + fabs(-0.1); y[1] = 1 ? 2.0 : 3; bool c = a; c |= n > 1; c = c == !c;
"""
    reading = read(body)
    assert violations(reading.module) == []
