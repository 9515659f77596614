"""Methods that the papers compare with and that the registry does not have: evidence, not offers.

Each is a class of scikit-learn's kind, in a file of its own that says its objective and where that is from, so that a
comparison takes it by name from a clone of the project:

    margin-compare -s 'odm,sklearn:tools.rivals.kmomd.KMOMD;lam=0.01,0.1,0.5' data/*

Of MDO (Garg and Roth, ICML 2003) there is none: docs/evidence.md says why.
"""
