"""The compiler: a Python function or a `Program` goes in, a callable comes out.

First in the data flow, and it imports none of the other packages. It defines `Program`, the one form in which tensor
programs are generated, interpreted, rewritten, stored and printed; `tracing` makes one from a function, the passes
rewrite it, a backend runs it. `targets` wraps every compiler that can be put under test, this one included.
"""
