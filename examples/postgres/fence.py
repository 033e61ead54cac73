"""A transaction of a leader, with psycopg2. Run it under a leadership, which says the election and its token:

    incumbent run jobs/nightly -- python3 fence.py postgres://jobs@10.0.0.1/app
"""

import os
import sys

import psycopg2

STALE = "IN409"


def book(connection, election, token):
    # The end of the block commits; an error rolls back.
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT incumbent.fence(%s, %s)", (election, token))
        cursor.execute("UPDATE account SET balance = balance - 10 WHERE id = 7")


def main():
    election, token = os.environ["INCUMBENT_ELECTION"], int(os.environ["INCUMBENT_TOKEN"])
    connection = psycopg2.connect(sys.argv[1])
    try:
        book(connection, election, token)
    except psycopg2.Error as error:
        if error.pgcode != STALE:
            raise
        # Another candidate leads. Trying again with this token is pointless.
        sys.exit(f"no longer leading: {error.diag.message_primary}")


if __name__ == "__main__":
    main()
